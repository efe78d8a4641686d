"""Initial values for a smaller kind of attention by the mean of trained heads.

That is what Ainslie et al. 2023 (section 2.1) found best for GQA: a shared projection starts as the
mean of those it replaces. For MHE each head's embeddings then bring the mean as close to the head's
own projection as they can.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from fairseq_mhe.convert.fit import Parameters, Target
from fairseq_mhe.convert.heads import Heads


def pool(kind: str, heads: Heads, target: Target) -> Parameters:
    """The parameters of a sublayer of ``kind`` whose shared projections are means over ``heads``.

    Raises:
        KeyError: there is no rule for ``kind``.
        ValueError: the heads are not ``target.width`` wide.
    """
    return POOLS[kind](heads.of_width(target.width), target)


def _pooled(heads: Heads, target: Target, groups: dict[str, int]) -> Parameters:
    """Projections by the letter of their name, each the mean over as many groups of heads, and the output as it is."""
    parameters = {"out_proj.weight": heads.output.transpose(0, 1).flatten(1)}
    for name in ("query", "key", "value"):
        for suffix, rows in (
            ("weight", getattr(heads, name)),
            ("bias", getattr(heads, f"{name}_bias")),
        ):
            mean = rows.unflatten(0, (groups[name], -1)).mean(dim=1)  # (groups, d, ...)
            parameters[f"{name[0]}_proj.{suffix}"] = mean.flatten(0, 1)
    parameters["out_proj.bias"] = heads.output_bias
    return {
        name: value
        for name, value in parameters.items()
        if target.bias or not name.endswith("bias")
    }


def _pool_gqa(heads: Heads, target: Target) -> Parameters:
    return _pooled(
        heads, target, {"query": heads.count, "key": target.groups, "value": target.groups}
    )


def _one_head(heads: Heads, target: Target) -> Parameters:
    return _pooled(heads, target, {"query": 1, "key": 1, "value": 1})


def _pool_mhe_mul(heads: Heads, target: Target) -> Parameters:
    """Each head's factor of a channel is what brings the mean closest to the head's own."""
    parameters = _one_head(heads, target)
    for name in ("query", "key", "value"):
        own, mean = getattr(heads, name), getattr(heads, name).mean(dim=0)  # (n, d, C), (d, C)
        size = mean.square().sum(dim=1)  # (d,)
        factors = torch.where(size > 0, (own * mean).sum(dim=2) / size, 1.0)  # (n, d)
        parameters[f"{name}_embedding"] = factors - target.offset
    return parameters


def _pool_mhe_add(heads: Heads, target: Target) -> Parameters:
    """Each head's shift is what its bias differs from the mean by."""
    parameters = _one_head(heads, target)
    for name in ("query", "key", "value"):
        bias = getattr(heads, f"{name}_bias")  # (n, d)
        parameters[f"{name}_embedding"] = bias - (bias.mean(dim=0) if target.bias else 0)
    return parameters


#: How each kind starts from means.
POOLS: dict[str, Callable[[Heads, Target], Parameters]] = {
    "mhe_mul": _pool_mhe_mul,
    "mhe_add": _pool_mhe_add,
    "mqa": _pool_gqa,
    "gqa": _pool_gqa,
}

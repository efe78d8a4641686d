"""Plain heads as those of fairseq's ``MultiheadAttention``: one key and one value for each head."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.plain_heads import PlainHeads
from fairseq_mhe.common.errors import UserError


def separate(heads: PlainHeads, count: int) -> PlainHeads:
    """Return ``count`` heads, each with a key and a value of its own: H, or n copies of one."""
    copies = count // len(heads.output)  # n if H is 1, else 1

    def spread(x: Tensor) -> Tensor:
        return x.repeat_interleave(count // len(x), dim=0)

    own = heads.with_own_queries()
    return replace(
        own,
        query=spread(own.query),
        query_bias=spread(own.query_bias),
        key=spread(own.key),
        value=spread(own.value),
        value_bias=spread(own.value_bias),
        output=spread(own.output) / copies,
    )


def stock_parameters(heads: PlainHeads, count: int, width: int) -> dict[str, Tensor]:
    """Return fairseq's parameters of ``count`` heads of this width, by name, in float32.

    Raises UserError if the heads do not fit.
    """
    stock = _resized(separate(heads, count), width)
    key = stock.key.flatten(0, 1)  # (n d, M)
    parameters = {
        "q_proj.weight": stock.query.flatten(0, 1),  # (n d, C)
        "q_proj.bias": stock.query_bias.flatten(),  # (n d,)
        "k_proj.weight": key,
        "k_proj.bias": key.new_zeros(len(key)),
        "v_proj.weight": stock.value.flatten(0, 1),
        "v_proj.bias": stock.value_bias.flatten(),
        "out_proj.weight": stock.output.transpose(0, 1).flatten(1),  # (C, n d)
        "out_proj.bias": stock.output_bias,
    }
    return {name: x.float().contiguous() for name, x in parameters.items()}


def _resized(heads: PlainHeads, width: int) -> PlainHeads:
    """Return separate heads of this width, scaled by width ** -0.5; UserError if none fit."""
    query = torch.cat((heads.query, heads.query_bias.unsqueeze(2)), dim=2)
    query, key = _factors(query, heads.key, width, "keys")  # (H, width, C + 1)
    value = torch.cat((heads.value, heads.value_bias.unsqueeze(2)), dim=2)
    output, value = _factors(heads.output.transpose(1, 2), value, width, "values")
    resized = replace(
        heads,
        query=query[..., :-1],
        query_bias=query[..., -1],
        key=key,
        value=value[..., :-1],
        value_bias=value[..., -1],
        output=output.transpose(1, 2),
    )
    return resized.scaled(width**-0.5)


def _factors(left: Tensor, right: Tensor, width: int, name: str) -> tuple[Tensor, Tensor]:
    """Return factors (n, width, a), (n, width, b) with the products of (n, w, a) and (n, w, b).

    The products are left_i^T right_i. Narrow factors are padded with zeros. The products of wide
    factors have a low rank in some kinds (a latent vector wider than a head); their truncated SVD
    is then exact. Else UserError.
    """
    missing = width - left.size(1)
    if missing >= 0:
        left, right = (nn.functional.pad(x, (0, 0, 0, missing)) for x in (left, right))
        return left, right
    left_basis, left_size = torch.linalg.qr(left.transpose(1, 2))  # (n, a, w), (n, w, w)
    right_basis, right_size = torch.linalg.qr(right.transpose(1, 2))
    u, sizes, v = torch.linalg.svd(left_size @ right_size.transpose(1, 2))
    rounding = 1e-12 * sizes[:, :1]
    if (sizes[:, width:] > rounding).any():
        what = f"heads with {name} {left.size(1)} wide do not fit into heads {width} wide"
        raise UserError(f"{what} without loss: approximate them by convert")
    roots = sizes[:, :width].sqrt().unsqueeze(1)  # (n, 1, width)
    left = left_basis @ u[..., :width] * roots
    right = right_basis @ v[:, :width].transpose(1, 2) * roots
    return left.transpose(1, 2), right.transpose(1, 2)

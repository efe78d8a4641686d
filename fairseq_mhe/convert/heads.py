"""Every kind of attention written out as ordinary heads: one small rule a kind, exact, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention import VARIANTS, Attention
from fairseq_mhe.attention.collaborative import CollaborativeAttention
from fairseq_mhe.attention.el import ELAttention
from fairseq_mhe.attention.gqa import GroupedQueryAttention
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEAdd, MHEMul
from fairseq_mhe.attention.sha import SingleHeadAttention
from fairseq_mhe.attention.skv import SharedKeyValueAttention
from fairseq_mhe.common.errors import UserError

#: Kinds whose written-out weights are products of parameters, so that they are no linear function
#: of them.
NOT_LINEAR = ("mhe_mul", "collaborative")


@dataclass(frozen=True)
class Heads:
    """Head i is softmax(scale (query_i x + query_bias_i) (key_i y + key_bias_i)) (value_i y + value_bias_i).

    With n heads, k and v the width of keys and values, C the model's width, M the memory's (all float64):
    ``query`` (n, k, C), ``query_bias`` (n, k), ``key`` (n, k, M), ``key_bias`` (n, k), ``value`` (n, v, M),
    ``value_bias`` (n, v); the output is the sum of ``output`` (n, C, v) times each head, plus ``output_bias`` (C,).
    """

    query: Tensor
    query_bias: Tensor
    key: Tensor
    key_bias: Tensor
    value: Tensor
    value_bias: Tensor
    output: Tensor
    output_bias: Tensor
    scale: float

    @property
    def count(self) -> int:
        """How many heads."""
        return self.query.size(0)

    @property
    def biased(self) -> bool:
        """Whether any bias is not zero."""
        return any(
            bool(b.any())
            for b in (self.query_bias, self.key_bias, self.value_bias, self.output_bias)
        )

    def scores(self) -> Tensor:
        """(n, C, M): the bilinear form of each head's scores, scale included, biases not."""
        return self.scale * self.query.transpose(1, 2) @ self.key

    def content(self) -> Tensor:
        """(n, M): what a head's query bias adds to the score of a key's input, whatever the query (scale included)."""
        return self.scale * (self.query_bias.unsqueeze(1) @ self.key).squeeze(1)

    def outputs(self) -> Tensor:
        """(n, C, M): the linear map of each head from the memory to the output, biases not included."""
        return self.output @ self.value

    def constant(self) -> Tensor:
        """(C,): what the sublayer adds whatever its input: value biases through the output, and the output's own."""
        return (self.output @ self.value_bias.unsqueeze(2)).sum(dim=0).squeeze(1) + self.output_bias

    def scaled(self, scale: float) -> Heads:
        """The same heads with another factor on the scores, made up for in the queries."""
        factor = self.scale / scale
        return replace(
            self, query=self.query * factor, query_bias=self.query_bias * factor, scale=scale
        )

    def of_width(self, width: int) -> Heads:
        """The same heads with keys and values of ``width`` by adding zeros, scaled by width ** -0.5.

        Raises:
            ValueError: keys or values are wider than that.
        """
        for name, found in (("keys", self.key.size(1)), ("values", self.value.size(1))):
            if found > width:
                raise ValueError(f"its heads' {name} are {found} wide and only {width} fit")
        names = ("query", "key", "value")
        padded: dict[str, Any] = {
            name: _with_rows(getattr(self, name), width)
            for name in (*names, *(f"{name}_bias" for name in names))
        }
        output = _with_rows(self.output.transpose(1, 2), width).transpose(1, 2)
        return replace(self, **padded, output=output).scaled(width**-0.5)


def write_out(attention: Attention) -> Heads:
    """The heads of a sublayer of any kind; computes the same as the sublayer, dropout aside.

    Raises:
        ValueError: a collaborative sublayer with biases whose content term has no exact place.
    """
    return RULES[kind_of(attention)](attention)


def kind_of(attention: Attention) -> str:
    """The registry's name of a sublayer's kind."""
    return next(name for name, kind in VARIANTS.items() if type(attention) is kind)


def stock_parameters(heads: Heads) -> dict[str, Tensor]:
    """The parameters of fairseq's own ``MultiheadAttention`` by their names there, in float32."""
    parameters = {}
    for name in ("query", "key", "value"):
        parameters[f"{name[0]}_proj.weight"] = getattr(heads, name).flatten(0, 1)  # (n d, in)
        parameters[f"{name[0]}_proj.bias"] = getattr(heads, f"{name}_bias").flatten()
    parameters["out_proj.weight"] = heads.output.transpose(0, 1).flatten(1)  # (C, n d)
    parameters["out_proj.bias"] = heads.output_bias
    return {name: parameter.float().contiguous() for name, parameter in parameters.items()}


def stock_width(attention: Attention) -> int:
    """The width of a head in fairseq's own attention of the same size.

    Raises:
        UserError: fairseq cannot split this model's width into so many heads.
    """
    if attention.embed_dim % attention.num_heads:
        raise UserError(
            f"{attention.num_heads} heads do not divide the model's width {attention.embed_dim}, which fairseq's own "
            "attention demands: this model has no stock form"
        )
    return attention.embed_dim // attention.num_heads


def _mha(a: MultiheadAttention) -> Heads:
    """The heads as they are."""
    return _heads(
        a, _rows(a.q_proj, a.num_heads), _rows(a.k_proj, a.num_heads), _rows(a.v_proj, a.num_heads)
    )


def _gqa(a: GroupedQueryAttention) -> Heads:
    """A group's key and value head stands in each of its heads."""
    group = a.num_heads // a.key_heads
    key, value = (_copied(_rows(layer, a.key_heads), group) for layer in (a.k_proj, a.v_proj))
    return _heads(a, _rows(a.q_proj, a.num_heads), key, value)


def _skv(a: SharedKeyValueAttention) -> Heads:
    """One projection is key and value."""
    shared = _rows(a.kv_proj, a.num_heads)
    return _heads(a, _rows(a.q_proj, a.num_heads), shared, shared)


def _el(a: ELAttention) -> Heads:
    """Keys and values are slices of the input: rows of the identity."""
    slices = torch.eye(a.kdim, dtype=torch.float64).unflatten(0, (a.num_heads, -1))  # (n, d, M)
    unbiased = slices.new_zeros(slices.shape[:2])
    return _heads(a, _rows(a.q_proj, a.num_heads), (slices, unbiased), (slices, unbiased))


def _sha(a: SingleHeadAttention) -> Heads:
    """The one head n times."""
    query, key, value = (
        _copied(_rows(layer, 1), a.num_heads) for layer in (a.q_proj, a.k_proj, a.v_proj)
    )
    return _heads(a, query, key, value)


def _mhe_mul(a: MHEMul) -> Heads:
    """(Q fQ) (K fK)^T = (Q fQ fK) K^T with f = 1 + e: both factors in the query, the value's in W_O."""
    query, key, value = (
        _copied(_rows(layer, 1), a.num_heads) for layer in (a.q_proj, a.k_proj, a.v_proj)
    )
    of_query, of_key, of_value = (
        a.head_embedding_offset + e.detach().double()
        for e in (a.query_embedding, a.key_embedding, a.value_embedding)
    )  # (n, d)
    heads = _heads(a, _times(query, of_query * of_key), key, value)
    return replace(heads, output=heads.output * of_value.unsqueeze(1))


def _mhe_add(a: MHEAdd) -> Heads:
    """e^Q and e^V are biases of a head; e^K adds the same to all of a query's scores, which softmax ignores."""
    query, key, value = (
        _copied(_rows(layer, 1), a.num_heads) for layer in (a.q_proj, a.k_proj, a.v_proj)
    )
    of_query, of_value = (
        e.detach().double() for e in (a.query_embedding, a.value_embedding)
    )  # (n, d)
    return _heads(a, (query[0], query[1] + of_query), key, (value[0], value[1] + of_value))


def _collaborative(a: CollaborativeAttention) -> Heads:
    """m_i in the query; the content term v_i is one more key channel, which a constant query reads.

    Channels that a head mixes with 0 are left out, so that keys are as wide as the head that uses
    most.
    """
    used = int(a.mixing.ne(0).sum(dim=1).max())
    order = a.mixing.detach().abs().argsort(dim=1, descending=True)[:, :used]  # (n, used)
    mixing = a.mixing.detach().double().gather(1, order)
    query = a.q_proj.weight.detach().double()[order] * mixing.unsqueeze(2)  # (n, used, C)
    key = a.k_proj.weight.detach().double()[order]  # (n, used, M)
    query_bias = query.new_zeros(query.shape[:2])
    if a.content_proj is not None:
        query = _with_rows(query, used + 1)
        query_bias = _with_rows(query_bias, used + 1)
        query_bias[:, -1] = 1 / a.scaling
        key = torch.cat((key, a.content_proj.weight.detach().double().unsqueeze(1)), dim=1)
    return _heads(
        a, (query, query_bias), (key, key.new_zeros(key.shape[:2])), _rows(a.v_proj, a.num_heads)
    )


#: How each kind is written out.
RULES: dict[str, Callable[..., Heads]] = {
    "mha": _mha,
    "mhe_mul": _mhe_mul,
    "mhe_add": _mhe_add,
    "sha": _sha,
    "mqa": _gqa,
    "gqa": _gqa,
    "skv": _skv,
    "el": _el,
    "collaborative": _collaborative,
}

#: Weights (n, d, in) and biases (n, d) of n heads.
Projection = tuple[Tensor, Tensor]


def _heads(a: Any, query: Projection, key: Projection, value: Projection) -> Heads:
    output = (
        a.out_proj.weight.detach().double().unflatten(1, (a.num_heads, -1)).transpose(0, 1)
    )  # (n, C, d)
    return Heads(*query, *key, *value, output, _bias(a.out_proj), a.scaling)


def _rows(layer: nn.Linear, heads: int) -> Projection:
    return layer.weight.detach().double().unflatten(0, (heads, -1)), _bias(layer).unflatten(
        0, (heads, -1)
    )


def _bias(layer: nn.Linear) -> Tensor:
    """(out,), zeros where there is none."""
    weight = layer.weight.detach().double()
    return weight.new_zeros(weight.size(0)) if layer.bias is None else layer.bias.detach().double()


def _copied(projection: Projection, times: int) -> Projection:
    weight, bias = (x.repeat_interleave(times, dim=0) for x in projection)
    return weight, bias


def _times(projection: Projection, factor: Tensor) -> Projection:
    """Multiply each channel by its ``factor`` (n, d)."""
    return projection[0] * factor.unsqueeze(2), projection[1] * factor


def _with_rows(x: Tensor, width: int) -> Tensor:
    """(n, d, ...) -> (n, width, ...) by adding zeros."""
    return torch.cat((x, x.new_zeros(x.size(0), width - x.size(1), *x.shape[2:])), dim=1)

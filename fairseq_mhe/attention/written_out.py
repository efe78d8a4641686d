"""A sublayer rewritten as ordinary heads that compute exactly the same, with float64 weights."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from fairseq_mhe.common.errors import UserError

#: Weights (n, d, in) and biases (n, d) of n heads.
Projection = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class WrittenOut:
    """n heads: head i of inputs x (C,) and y (M,) is softmax(scale q_i k_i^T) v_i, where
    q_i = query_i x + query_bias_i, k_i = key_i y + key_bias_i, v_i = value_i y + value_bias_i.

    Keys are k wide, values v wide: ``query`` (n, k, C), ``query_bias`` (n, k), ``key`` (n, k, M),
    ``key_bias`` (n, k), ``value`` (n, v, M), ``value_bias`` (n, v). The sublayer's output is the
    sum over heads of ``output_i`` (C, v) times head i, plus ``output_bias`` (C,).
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

    @classmethod
    def of(cls, a: Any, query: Projection, key: Projection, value: Projection) -> Self:
        """Return heads with these projections, and with W_O and the scale of attention ``a``."""
        output = a.out_proj.weight.detach().double()
        output = output.unflatten(1, (a.num_heads, -1)).transpose(0, 1)  # (n, C, d)
        return cls(*query, *key, *value, output, _bias(a.out_proj), a.scaling)

    @classmethod
    def of_projections(cls, a: Any) -> Self:
        """Return the heads of attention ``a``; heads that share a projection get copies of it."""
        query = head_projections(a.q_proj, a.num_heads, a.query_heads)
        key = head_projections(a.k_proj, a.num_heads, a.key_heads)
        value = head_projections(a.v_proj, a.num_heads, a.value_heads)
        return cls.of(a, query, key, value)

    @property
    def biased(self) -> bool:
        """Whether any bias differs from zero."""
        biases = (self.query_bias, self.key_bias, self.value_bias, self.output_bias)
        return any(bool(bias.any()) for bias in biases)

    def scaled(self, scale: float) -> Self:
        """Return the same heads with another scale of the scores; the queries compensate for it."""
        factor = self.scale / scale
        query = self.query * factor
        query_bias = self.query_bias * factor
        return replace(self, query=query, query_bias=query_bias, scale=scale)

    def of_width(self, width: int) -> Self:
        """Return the same heads, padded to ``width`` with zeros and scaled by width ** -0.5.

        Raises UserError if keys or values are wider.
        """
        widths = {"keys": self.key.size(1), "values": self.value.size(1)}
        for name, wide in widths.items():
            if wide > width:
                what = f"heads with {name} {wide} wide do not fit into heads {width} wide"
                raise UserError(f"{what} without loss: approximate them by convert")
        output = with_rows(self.output.transpose(1, 2), width).transpose(1, 2)
        fields = "query", "query_bias", "key", "key_bias", "value", "value_bias"
        padded: Any = {field: with_rows(getattr(self, field), width) for field in fields}
        return replace(self, output=output, **padded).scaled(width**-0.5)

    def stock_parameters(self) -> dict[str, Tensor]:
        """Return parameters for fairseq's ``MultiheadAttention`` by their names, in float32."""
        parameters = {}
        for name in ("query", "key", "value"):
            weight = getattr(self, name)
            bias = getattr(self, f"{name}_bias")
            parameters[f"{name[0]}_proj.weight"] = weight.flatten(0, 1)  # (n d, in)
            parameters[f"{name[0]}_proj.bias"] = bias.flatten()  # (n d,)
        parameters["out_proj.weight"] = self.output.transpose(0, 1).flatten(1)  # (C, n d)
        parameters["out_proj.bias"] = self.output_bias
        return {name: x.float().contiguous() for name, x in parameters.items()}


def head_projections(layer: nn.Linear, heads: int, own: int | None = None) -> Projection:
    """Return each head's projection; ``own`` is the number in ``layer`` if heads share them."""
    own = heads if own is None else own
    weight = layer.weight.detach().double().unflatten(0, (own, -1))  # (own, d, in)
    bias = _bias(layer).unflatten(0, (own, -1))  # (own, d)
    copies = heads // own
    return weight.repeat_interleave(copies, dim=0), bias.repeat_interleave(copies, dim=0)


def with_rows(x: Tensor, width: int) -> Tensor:
    """(n, d, ...) -> (n, width, ...), padded with zeros."""
    missing = x.size(0), width - x.size(1), *x.shape[2:]
    return torch.cat((x, x.new_zeros(missing)), dim=1)


def _bias(layer: nn.Linear) -> Tensor:
    """Return the bias (out,) of a layer, zeros if it has none."""
    if layer.bias is None:
        return torch.zeros(layer.out_features, dtype=torch.float64)
    return layer.bias.detach().double()

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
    """n ordinary heads: each has its own projections of the inputs x (C,) and y (M,) at a position.

    Head i is softmax(scale q_i k_i^T) v_i with q_i = query_i x + query_bias_i, k_i = key_i y +
    key_bias_i and v_i = value_i y + value_bias_i. The sublayer's output is the sum over heads of
    ``output_i`` times head i, plus ``output_bias``.
    """

    query: Tensor  # (n, dk, C)
    query_bias: Tensor  # (n, dk)
    key: Tensor  # (n, dk, M)
    key_bias: Tensor  # (n, dk)
    value: Tensor  # (n, dv, M)
    value_bias: Tensor  # (n, dv)
    output: Tensor  # (n, C, dv)
    output_bias: Tensor  # (C,)
    scale: float

    @classmethod
    def of(
        cls, layer: Any, query: Projection, key: Projection, value: Projection
    ) -> Self:
        """Return heads with these projections, and with W_O and the scale of an attention layer."""
        output = layer.out_proj.weight.detach().double()
        output = output.unflatten(1, (layer.num_heads, -1)).transpose(0, 1)  # (n, C, dv)
        return cls(*query, *key, *value, output, _bias(layer.out_proj), layer.scaling)

    @classmethod
    def of_projections(cls, layer: Any) -> Self:
        """Return an attention layer's heads; heads that share a projection get copies of it."""
        n = layer.num_heads
        query = head_projections(layer.q_proj, layer.query_heads, n // layer.query_heads)
        key = head_projections(layer.k_proj, layer.kv_heads, n // layer.kv_heads)
        value = head_projections(layer.v_proj, layer.kv_heads, n // layer.kv_heads)
        return cls.of(layer, query, key, value)

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
        """Return the heads padded to ``width``, scaled by width ** -0.5; UserError if wider."""
        widths = {"keys": self.key.size(1), "values": self.value.size(1)}
        for name, own_width in widths.items():
            if own_width > width:
                what = f"heads with {name} {own_width} wide do not fit into heads {width} wide"
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


def head_projections(layer: nn.Linear, heads: int, copies: int = 1) -> Projection:
    """Return the projections of ``heads`` heads that ``layer`` computes, each ``copies`` times."""
    weight = layer.weight.detach().double().unflatten(0, (heads, -1))  # (heads, d, in)
    bias = _bias(layer).unflatten(0, (heads, -1))  # (heads, d)
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

"""A sublayer written out as ordinary heads: exact, in float64, with all that follows from them."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from fairseq_mhe.common.errors import UserError

#: Weights (n, d, in) and biases (n, d) of n heads.
Projection = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class WrittenOut:
    """Heads as weights: head i is softmax(scale q_i k_i) v_i of inputs x and y, where q_i =
    query_i x + query_bias_i, k_i = key_i y + key_bias_i, v_i = value_i y + value_bias_i.

    With n heads, k and v the width of keys and values, C the model's width, M the memory's (all
    float64): ``query`` (n, k, C), ``query_bias`` (n, k), ``key`` (n, k, M), ``key_bias`` (n, k),
    ``value`` (n, v, M), ``value_bias`` (n, v); the output is the sum of ``output`` (n, C, v) times
    each head, plus ``output_bias`` (C,).
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
        """The heads of a sublayer with these projections, its output projection and its scale."""
        output = a.out_proj.weight.detach().double()
        output = output.unflatten(1, (a.num_heads, -1)).transpose(0, 1)  # (n, C, d)
        return cls(*query, *key, *value, output, _bias(a.out_proj), a.scaling)

    @classmethod
    def of_projections(cls, a: Any) -> Self:
        """The heads of ``q_proj``, ``k_proj``, ``v_proj``, copied for the heads that share them."""
        query = head_projections(a.q_proj, a.num_heads, a.query_heads)
        key = head_projections(a.k_proj, a.num_heads, a.key_heads)
        value = head_projections(a.v_proj, a.num_heads, a.value_heads)
        return cls.of(a, query, key, value)

    @property
    def biased(self) -> bool:
        """Whether any bias is not zero."""
        biases = (self.query_bias, self.key_bias, self.value_bias, self.output_bias)
        return any(bool(bias.any()) for bias in biases)

    def scaled(self, scale: float) -> Self:
        """The same heads with another factor on the scores, made up for in the queries."""
        factor = self.scale / scale
        query = self.query * factor
        query_bias = self.query_bias * factor
        return replace(self, query=query, query_bias=query_bias, scale=scale)

    def of_width(self, width: int) -> Self:
        """The same heads, filled up to ``width`` by zeros and scaled by width ** -0.5, or UserError
        where keys or values are wider than that.
        """
        widths = {"keys": self.key.size(1), "values": self.value.size(1)}
        for name, own in widths.items():
            if own > width:
                what = f"heads with {name} {own} wide do not fit into heads {width} wide"
                raise UserError(f"{what} without loss: convert approximates them")
        output = with_rows(self.output.transpose(1, 2), width).transpose(1, 2)
        fields = "query", "query_bias", "key", "key_bias", "value", "value_bias"
        padded: Any = {field: with_rows(getattr(self, field), width) for field in fields}
        return replace(self, output=output, **padded).scaled(width**-0.5)

    def stock_parameters(self) -> dict[str, Tensor]:
        """The parameters of fairseq's ``MultiheadAttention`` by their names there, in float32."""
        parameters = {}
        for name in ("query", "key", "value"):
            weight = getattr(self, name)
            bias = getattr(self, f"{name}_bias")
            parameters[f"{name[0]}_proj.weight"] = weight.flatten(0, 1)  # (n d, in)
            parameters[f"{name[0]}_proj.bias"] = bias.flatten()  # (n d,)
        parameters["out_proj.weight"] = self.output.transpose(0, 1).flatten(1)  # (C, n d)
        parameters["out_proj.bias"] = self.output_bias
        return {name: each.float().contiguous() for name, each in parameters.items()}


def head_projections(layer: nn.Linear, heads: int, kept: int | None = None) -> Projection:
    """Each head's projection; that of fewer ``kept`` heads is copied for those that share it."""
    kept = heads if kept is None else kept
    weight = layer.weight.detach().double().unflatten(0, (kept, -1))  # (kept, d, in)
    bias = _bias(layer).unflatten(0, (kept, -1))  # (kept, d)
    copies = heads // kept
    return weight.repeat_interleave(copies, dim=0), bias.repeat_interleave(copies, dim=0)


def with_rows(x: Tensor, width: int) -> Tensor:
    """(n, d, ...) -> (n, width, ...) by adding zeros."""
    missing = x.size(0), width - x.size(1), *x.shape[2:]
    return torch.cat((x, x.new_zeros(missing)), dim=1)


def _bias(layer: nn.Linear) -> Tensor:
    """(out,), zeros where there is none."""
    if layer.bias is None:
        return torch.zeros(layer.out_features, dtype=torch.float64)
    return layer.bias.detach().double()

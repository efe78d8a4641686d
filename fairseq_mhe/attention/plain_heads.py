"""A sublayer folded into plain heads that compute exactly the same, with float64 weights."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from torch import Tensor, nn


class Projection(NamedTuple):
    """The products of an input with each head's weight, plus the head's bias."""

    weight: Tensor  # (heads, d, in)
    bias: Tensor  # (heads, d)

    @classmethod
    def of(cls, layer: nn.Linear, heads: int = 1) -> Self:
        """Return what ``layer`` computes for so many heads; no bias is a bias of 0."""
        weight, bias = layer.weight, layer.bias  # (heads d, in), (heads d,)
        if bias is None:
            bias = weight.new_zeros(len(weight))
        return cls(weight.unflatten(0, (heads, -1)), bias.unflatten(0, (heads, -1)))

    def then(self, matrices: Tensor) -> "Projection":
        """Return this projection, multiplied by each head's matrix in ``matrices`` (n, e, d)."""
        bias = matrices @ self.bias.unsqueeze(2)  # (n, e, 1)
        return Projection(matrices @ self.weight, bias.squeeze(2))


@dataclass(frozen=True)
class PlainHeads:
    """H query heads that read Hk key heads and Hv value heads; Hk and Hv divide H.

    At a position with the inputs x (C,) and y (M,), head i has the query q_i = query_i x +
    query_bias_i, and reads the key k = key_j y of j = i // (H / Hk) and the value v_i = value_l y +
    value_bias_i of l = i // (H / Hv). It is softmax(scale q_i k^T) v_i. The output is the sum over
    heads of ``output_i`` times head i, plus ``output_bias``. Keys have no biases, since softmax
    ignores them: they add the same number to all scores of a query.

    Hq is H, or 1 if all heads share the weight: then q_i = query_factors_i * (query x) +
    query_bias_i, by elements.

    Where keys are also values, ``key`` and ``value`` are one tensor.
    """

    query: Tensor  # (Hq, dk, C)
    query_bias: Tensor  # (H, dk)
    key: Tensor  # (Hk, dk, M)
    value: Tensor  # (Hv, dv, M)
    value_bias: Tensor  # (H, dv), one for each query head
    output: Tensor  # (H, C, dv)
    output_bias: Tensor  # (C,)
    scale: float
    query_factors: Tensor | None = None  # (H, dk); None: all are 1

    @classmethod
    def of(
        cls,
        layer: Any,
        query: Projection,
        key: Projection,
        value: Projection,
        output: Tensor | None = None,
    ) -> Self:
        """Return heads with these projections, and with W_O and the scale of an attention layer.

        ``output``: (H, C, dv) in place of W_O.
        """
        merging = Projection.of(layer.out_proj)  # (1, C, H dv), (1, C)
        if output is None:
            output = merging.weight[0].unflatten(1, (layer.num_heads, -1)).transpose(0, 1)

        def for_each_head(bias: Tensor) -> Tensor:
            return bias.repeat_interleave(len(output) // len(bias), dim=0)

        return cls(
            query=query.weight,
            query_bias=for_each_head(query.bias),
            key=key.weight,
            value=value.weight,
            value_bias=for_each_head(value.bias),
            output=output,
            output_bias=merging.bias[0],
            scale=layer.scaling,
        )

    @classmethod
    def of_projections(cls, layer: Any) -> Self:
        """Return an attention layer's heads."""
        query = Projection.of(layer.q_proj, layer.query_heads)
        key = Projection.of(layer.k_proj, layer.kv_heads)
        value = Projection.of(layer.v_proj, layer.kv_heads)
        return cls.of(layer, query, key, value)

    def scaled(self, scale: float) -> Self:
        """Return the same heads with another scale of the scores; the queries compensate for it."""
        factor = self.scale / scale
        query = self.query * factor
        query_bias = self.query_bias * factor
        return replace(self, query=query, query_bias=query_bias, scale=scale)

    def with_own_queries(self) -> Self:
        """Return the same heads; each has a weight of its own for the query."""
        query = self.query.repeat_interleave(len(self.output) // len(self.query), dim=0)
        if self.query_factors is not None:
            query = query * self.query_factors.unsqueeze(2)
        return replace(self, query=query, query_factors=None)

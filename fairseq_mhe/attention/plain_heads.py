"""A sublayer folded into plain heads that compute exactly the same, with float64 weights."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from fairseq_mhe.common.errors import UserError


class Projection(NamedTuple):
    """The products of an input with each head's weight, plus the head's bias."""

    weight: Tensor  # (heads, d, in)
    bias: Tensor  # (heads, d)

    @classmethod
    def of(cls, layer: nn.Linear, heads: int = 1) -> Self:
        """Return what ``layer`` computes for so many heads, in float64; no bias is a bias of 0."""
        weight = layer.weight.detach().double()  # (heads d, in)
        bias = weight.new_zeros(len(weight))
        if layer.bias is not None:
            bias = layer.bias.detach().double()
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

    @property
    def biased(self) -> bool:
        """Whether any bias differs from zero."""
        biases = (self.query_bias, self.value_bias, self.output_bias)
        return any(bool(bias.any()) for bias in biases)

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

    def separate(self, heads: int) -> Self:
        """Return so many heads, each with a key and a value of its own: H, or n copies of one."""
        copies = heads // len(self.output)  # n if H is 1, else 1

        def spread(x: Tensor) -> Tensor:
            return x.repeat_interleave(heads // len(x), dim=0)

        own = self.with_own_queries()
        return replace(
            own,
            query=spread(own.query),
            query_bias=spread(own.query_bias),
            key=spread(own.key),
            value=spread(own.value),
            value_bias=spread(own.value_bias),
            output=spread(own.output) / copies,
        )

    def of_width(self, width: int) -> Self:
        """Return separate heads of this width, scaled by width ** -0.5; UserError if none fit."""
        query = torch.cat((self.query, self.query_bias.unsqueeze(2)), dim=2)
        query, key = _of_width(query, self.key, width, "keys")  # (H, width, C + 1)
        value = torch.cat((self.value, self.value_bias.unsqueeze(2)), dim=2)
        output, value = _of_width(self.output.transpose(1, 2), value, width, "values")
        heads = replace(
            self,
            query=query[..., :-1],
            query_bias=query[..., -1],
            key=key,
            value=value[..., :-1],
            value_bias=value[..., -1],
            output=output.transpose(1, 2),
        )
        return heads.scaled(width**-0.5)

    def stock_parameters(self, heads: int, width: int) -> dict[str, Tensor]:
        """Return fairseq's ``MultiheadAttention`` with so many heads by parameter, in float32.

        Raises UserError if the heads do not fit into heads of this width.
        """
        stock = self.separate(heads).of_width(width)
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


def _of_width(
    left: Tensor, right: Tensor, width: int, name: str
) -> tuple[Tensor, Tensor]:
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

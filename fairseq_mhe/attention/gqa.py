"""Grouped-query and multi-query attention: Ainslie et al. 2023, section 2.2; Shazeer 2019, section 3.

Head i of group j: softmax(X W_Q^i (Y W_K^j)^T / sqrt(d)) Y W_V^j, with n / g heads a group; MQA has
one group. Parameters without biases: 2 C n d + kdim g d + vdim g d; for MQA with n d = C: 2 C^2 + 2
C d.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from fairseq_mhe.attention.base import Attention, join_heads, split_heads
from fairseq_mhe.attention.mha import PACKED_GAIN


class GroupedQueryAttention(Attention):
    """Every head has its own query; g key and value heads are shared by n / g heads each.

    Args:
        kv_heads: g, which must divide ``num_heads``: 1 is MQA, ``num_heads`` is MHA (default: 2,
        for odd numbers 1).
    """

    options: tuple[str, ...] = ("kv_heads",)

    def __init__(
        self, embed_dim: int, num_heads: int, *, kv_heads: int | None = None, **common: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **common)
        kv_heads = math.gcd(2, num_heads) if kv_heads is None else kv_heads
        if kv_heads < 1 or num_heads % kv_heads:
            raise ValueError(
                f"kv_heads {kv_heads} does not divide num_heads {num_heads}: choose a divisor"
            )
        self.key_heads = self.value_heads = kv_heads
        gain = PACKED_GAIN if self.kdim == self.vdim == embed_dim else 1.0
        self.k_proj = self.linear(self.kdim, kv_heads * self.head_dim, gain)
        self.v_proj = self.linear(self.vdim, kv_heads * self.head_dim, gain)
        self.q_proj = self.linear(embed_dim, num_heads * self.head_dim, gain)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d)."""
        return split_heads(self.q_proj(x), self.num_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, g, S, d) twice."""
        return split_heads(self.k_proj(key), self.key_heads), split_heads(
            self.v_proj(value), self.value_heads
        )

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C)."""
        return self.out_proj(join_heads(heads))


class MultiQueryAttention(GroupedQueryAttention):
    """One key and one value head for all queries."""

    options = ()

    def __init__(self, embed_dim: int, num_heads: int, **common: Any) -> None:
        super().__init__(embed_dim, num_heads, kv_heads=1, **common)

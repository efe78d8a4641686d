"""Multi-head attention: Vaswani et al. 2017, section 3.2.2.

Head i: softmax(X W_Q^i (Y W_K^i)^T / sqrt(d)) Y W_V^i; output concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d + vdim n d, that is 4 C^2.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fairseq_mhe.attention.base import Attention, join_heads, split_heads

#: fairseq's gain for projections that are stored apart but would be one matrix of three times the
#: height.
PACKED_GAIN = 2**-0.5


class MultiheadAttention(Attention):
    """Every head has its own query, key and value projection; weights are named and initialised as fairseq's."""

    def __init__(self, embed_dim: int, num_heads: int, **common: Any) -> None:
        super().__init__(embed_dim, num_heads, **common)
        self.key_heads = self.value_heads = num_heads
        width = num_heads * self.head_dim
        gain = PACKED_GAIN if self.kdim == self.vdim == embed_dim else 1.0
        self.k_proj = self.linear(self.kdim, width, gain)
        self.v_proj = self.linear(self.vdim, width, gain)
        self.q_proj = self.linear(embed_dim, width, gain)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d)."""
        return split_heads(self.q_proj(x), self.num_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, n, S, d) twice."""
        return split_heads(self.k_proj(key), self.num_heads), split_heads(
            self.v_proj(value), self.num_heads
        )

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C)."""
        return self.out_proj(join_heads(heads))

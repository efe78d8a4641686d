"""Shared keys and values: the SKV of Xue & Aletras 2023, section 4.

Head i: K_i = V_i = Y W^i; softmax(X W_Q^i K_i^T / sqrt(d)) K_i; output concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d; with n d = C: 3 C^2.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fairseq_mhe.attention.base import Attention, join_heads, split_heads
from fairseq_mhe.attention.mha import PACKED_GAIN


class SharedKeyValueAttention(Attention):
    """One projection serves as keys and values, so one tensor is computed and cached."""

    keys_are_values = True

    def __init__(self, embed_dim: int, num_heads: int, **common: Any) -> None:
        super().__init__(embed_dim, num_heads, **common)
        if self.kdim != self.vdim:
            raise ValueError(
                f"skv projects keys and values together: kdim {self.kdim} and vdim {self.vdim} differ"
            )
        self.key_heads = self.value_heads = num_heads
        width = num_heads * self.head_dim
        gain = PACKED_GAIN if self.kdim == embed_dim else 1.0
        self.kv_proj = self.linear(self.kdim, width, gain)
        self.q_proj = self.linear(embed_dim, width, gain)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d)."""
        return split_heads(self.q_proj(x), self.num_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one (B, n, S, d), as both; ``value`` is the same input."""
        shared = split_heads(self.kv_proj(key), self.num_heads)
        return shared, shared

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C)."""
        return self.out_proj(join_heads(heads))

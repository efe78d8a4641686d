"""EL-attention as Xue & Aletras 2023, section 4, compare it: no key or value projection at all.

Head i: softmax(X W_Q^i Y_i^T / sqrt(d)) Y_i, where Y_i is slice i of Y, d wide; output
concat(heads) W_O. Parameters without biases: 2 C n d; with n d = C: 2 C^2. The parameter count
leaves no other reading; the EL-attention of Yan et al. 2021 is another thing, a lossless rewriting
of MHA for decoding.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fairseq_mhe.attention.base import Attention, join_heads, split_heads
from fairseq_mhe.attention.mha import PACKED_GAIN


class ELAttention(Attention):
    """Slices of the input are keys and values, so the input itself is what is cached."""

    keys_are_values = True

    def __init__(self, embed_dim: int, num_heads: int, **common: Any) -> None:
        super().__init__(embed_dim, num_heads, **common)
        width = num_heads * self.head_dim
        if not self.kdim == self.vdim == width:
            raise ValueError(
                f"el slices its input into heads: num_heads {num_heads} x head_dim {self.head_dim} = {width}"
                f" must equal kdim {self.kdim} and vdim {self.vdim}"
            )
        self.key_heads = self.value_heads = num_heads
        self.q_proj = self.linear(embed_dim, width, PACKED_GAIN)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d)."""
        return split_heads(self.q_proj(x), self.num_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, n d) -> one (B, n, S, d), as both; ``value`` is the same input."""
        slices = split_heads(key, self.num_heads)
        return slices, slices

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C)."""
        return self.out_proj(join_heads(heads))

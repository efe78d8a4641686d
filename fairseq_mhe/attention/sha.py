"""Single-head attention, its head repeated n times before W_O: the baseline SHA of Xue & Aletras 2023, section 4.

H = softmax(X W_Q (Y W_K)^T / sqrt(d)) Y W_V; output concat(H, ..., H) W_O: MHE without head
embeddings. Parameters without biases: C d + kdim d + vdim d + n d C.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.mha import PACKED_GAIN


class SingleHeadAttention(Attention):
    """One query, key and value head. Its n copies are never made: W_O's rows for them are summed instead."""

    def __init__(self, embed_dim: int, num_heads: int, **common: Any) -> None:
        super().__init__(embed_dim, num_heads, **common)
        self.key_heads = self.value_heads = 1
        self.k_proj = self.linear(self.kdim, self.head_dim, PACKED_GAIN)
        self.v_proj = self.linear(self.vdim, self.head_dim, PACKED_GAIN)
        self.q_proj = self.linear(embed_dim, self.head_dim, PACKED_GAIN)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, 1, T, d)."""
        return self.q_proj(x).transpose(0, 1).unsqueeze(1)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, 1, S, d) twice."""
        return self.k_proj(key).transpose(0, 1).unsqueeze(1), self.v_proj(value).transpose(
            0, 1
        ).unsqueeze(1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, 1, T, d) -> (T, B, C)."""
        summed = self.out_proj.weight.unflatten(1, (self.num_heads, self.head_dim)).sum(
            dim=1
        )  # (C, d)
        return F.linear(heads.squeeze(1).transpose(0, 1), summed, self.out_proj.bias)

"""Single-head attention, repeated n times before W_O: SHA of Xue & Aletras 2023, section 4.

H = softmax(X W_Q (Y W_K)^T / sqrt(d)) Y W_V; output concat(H, ..., H) W_O: MHE without head
embeddings. Parameters without biases: C d + kdim d + vdim d + n d C.
"""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.attention.sublayer import PACKED_GAIN


class SingleHeadAttention(Attention):
    """One head. Its n copies are never made: W_O's rows for them are summed instead."""

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        self.project(1, kept=1)

    def gain(self, width: int) -> float:
        """fairseq's for self-attention, whatever the widths."""
        return PACKED_GAIN

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, 1, T, d) -> (T, B, C)."""
        copies = self.out_proj.weight.unflatten(1, (self.num_heads, self.head_dim))  # (C, n, d)
        summed = copies.sum(dim=1)  # (C, d)
        return F.linear(heads.squeeze(1).transpose(0, 1), summed, self.out_proj.bias)

    def written_out(self) -> Heads:
        """The one head n times."""
        return Heads.of_projections(self)

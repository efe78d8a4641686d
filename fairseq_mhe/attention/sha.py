"""Single-head attention, repeated n times before W_O: SHA of Xue & Aletras 2023, section 4.

H = softmax(X W_Q (Y W_K)^T / sqrt(d)) Y W_V; output concat(H, ..., H) W_O: MHE without head
embeddings. Parameters without biases: C d + kdim d + vdim d + n d C.
"""

from torch import Tensor
from torch.nn.functional import linear

from fairseq_mhe.attention.base import Attention


class SingleHeadAttention(Attention):
    """One head. Its n copies are never made: W_O's rows for them are summed instead."""

    shared_projection_init = "packed"
    projects_together = True
    written_out = Attention.written_out  # the head n times

    def build(self) -> None:
        self.project(1, kept=1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, 1, T, d) -> (T, B, C)."""
        summed = self.once(self.summed_output)
        return linear(heads.squeeze(1).transpose(0, 1), summed, self.out_proj.bias)

    def summed_output(self) -> Tensor:
        """(C, d): the sum of what W_O has for each copy."""
        copies = self.out_proj.weight.unflatten(1, (self.num_heads, -1))  # (C, n, d)
        return copies.sum(dim=1)

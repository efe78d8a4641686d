"""Single-head attention (SHA): Xue & Aletras 2023, section 4 (arXiv 2310.07911).

The only head is H = softmax(X W_Q (Y W_K)^T / sqrt(d)) Y W_V; the output is concat(H, ..., H) W_O,
with H repeated n times. This is MHE without head embeddings.
Parameters without biases: C d + kdim d + vdim d + n d C.
"""

from torch import Tensor
from torch.nn.functional import linear

from fairseq_mhe.attention.base import Attention


class SingleHeadAttention(Attention):
    """One head; the sum of W_O's n blocks replaces n copies of the head."""

    shared_projection_init = "packed"
    projects_together = True
    written_out = Attention.written_out  # kept, although `merge` is a hook: n equal heads

    def build(self) -> None:
        self.project(1, kv_heads=1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, 1, T, d) -> (T, B, C)."""
        weight = self.compute_once(self.summed_output_weight)
        return linear(heads.squeeze(1).transpose(0, 1), weight, self.out_proj.bias)

    def summed_output_weight(self) -> Tensor:
        """(C, d): the sum of the blocks that W_O has for each copy of the head."""
        blocks = self.out_proj.weight.unflatten(1, (self.num_heads, -1))  # (C, n, d)
        return blocks.sum(dim=1)

"""Single-head attention (SHA): Xue & Aletras 2023, section 4 (arXiv 2310.07911).

The only head is H = softmax(X W_Q (Y W_K)^T / sqrt(d)) Y W_V; the output is concat(H, ..., H) W_O,
with H repeated n times. This is MHE without head embeddings.
Parameters without biases: C d + kdim d + vdim d + n d C.
"""

from dataclasses import replace

from torch import Tensor

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.equations import Result, affine, attend_heads
from fairseq_mhe.attention.few_shapes import linear
from fairseq_mhe.attention.plain_heads import PlainHeads


class SingleHeadAttention(Attention):
    """One head; the sum of W_O's n blocks replaces n copies of the head."""

    one_query = one_key_value = True
    shared_projection_init = "packed"

    def merge(self, heads: Tensor) -> Tensor:
        """(B, 1, T, d) -> (T, B, C)."""
        blocks = self.out_proj.weight.unflatten(1, (self.num_heads, -1))  # (C, n, d)
        return linear(
            heads.squeeze(1).transpose(0, 1), blocks.sum(dim=1), self.out_proj.bias
        )

    def plain_heads(self) -> PlainHeads:
        """One head, with the sum of W_O's blocks as its output."""
        heads = PlainHeads.of_projections(self)  # n equal ones
        return replace(
            heads,
            query_bias=heads.query_bias[:1],
            value_bias=heads.value_bias[:1],
            output=heads.output.sum(dim=0, keepdim=True),
        )

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        queries = [affine(self.q_proj, x)] * self.num_heads
        keys, values = [affine(self.k_proj, y)], [affine(self.v_proj, y)]
        return attend_heads(queries, keys, values, mask, self.out_proj)

"""EL-attention as Xue & Aletras 2023, section 4, compare it: no key or value projection at all.

Head i: softmax(X W_Q^i Y_i^T / sqrt(d)) Y_i, where Y_i is slice i of Y, d wide; output
concat(heads) W_O. Parameters without biases: 2 C n d; with n d = C: 2 C^2, which leaves no other
reading. (EL-attention of Yan et al. 2021 is another thing, a lossless rewriting of MHA.)
"""

import torch
from torch import Tensor

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.written_out import WrittenOut, head_projections


class ELAttention(Attention):
    """Slices of the input are keys and values, so the input itself is what is cached."""

    keys_are_values = True
    shared_projection_init = "packed"

    def build(self) -> None:
        width = self.num_heads * self.head_dim
        if self.kdim != width:
            sizes = f"num_heads {self.num_heads} x head_dim {self.head_dim} = {width}"
            what = f"{sizes} must equal kdim {self.kdim}"
            raise ValueError(f"el slices its input into heads: {what}")
        self.q_proj = self.input_linear(self.embed_dim, width)
        self.out_proj = self.output_linear()

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, n d) -> one (B, n, S, d), as both; ``value`` is the same input."""
        slices = split_heads(key, self.num_heads)
        return slices, slices

    def written_out(self) -> WrittenOut:
        """Keys and values are slices of the input: rows of the identity."""
        identity = torch.eye(self.kdim, dtype=torch.float64)  # (n d, M)
        slices = identity.unflatten(0, (self.num_heads, -1))  # (n, d, M)
        unbiased = slices.new_zeros(slices.shape[:2])  # (n, d)
        query = head_projections(self.q_proj, self.num_heads)
        return WrittenOut.of(self, query, (slices, unbiased), (slices, unbiased))

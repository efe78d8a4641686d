"""EL-attention as Xue & Aletras 2023, section 4, compare it (arXiv 2310.07911).

There is no key or value projection. Head i reads Y_i, slice i of Y, which is d wide:
softmax(X W_Q^i Y_i^T / sqrt(d)) Y_i; the output is concat(heads) W_O. Parameters without biases:
2 C n d, or 2 C^2 if n d = C. That is the paper's count; no other reading of it fits.
(The EL-attention of Yan et al. 2021 is another method, a lossless rewriting of MHA.)
"""

import torch
from torch import Tensor

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.equations import Result, attend_heads, heads_of
from fairseq_mhe.attention.plain_heads import PlainHeads, Projection


class ELAttention(Attention):
    """Slices of the input are the keys and values, so the cache holds the input itself."""

    keys_are_values = True
    shared_projection_init = "packed"

    def build(self) -> None:
        width = self.all_heads_dim
        if self.kdim != width:
            sizes = f"num_heads {self.num_heads} x head_dim {self.head_dim} = {width}"
            what = f"{sizes} must equal kdim {self.kdim}"
            raise ValueError(f"el slices its input into heads: {what}")
        self.q_proj = self.input_linear(self.embed_dim, width)
        self.out_proj = self.output_linear()

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, n d) -> one tensor (B, n, S, d) for both; ``value`` equals ``key``."""
        slices = split_heads(key, self.num_heads)
        return slices, slices

    def plain_heads(self) -> PlainHeads:
        """Rows of the identity are the weights that slice the input into keys and values."""
        query = Projection.of(self.q_proj, self.num_heads)
        identity = torch.eye(self.kdim, dtype=torch.float64, device=query.weight.device)
        weight = identity.unflatten(0, (self.num_heads, -1))  # (n, d, n d)
        slices = Projection(weight, bias=weight.new_zeros(weight.shape[:2]))
        return PlainHeads.of(self, query, slices, slices)

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        queries = heads_of(self.q_proj, x, self.num_heads)
        slices = y.chunk(self.num_heads, dim=-1)
        return attend_heads(queries, slices, slices, mask, self.out_proj)

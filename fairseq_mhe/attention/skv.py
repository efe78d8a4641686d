"""Shared keys and values (SKV): Xue & Aletras 2023, section 4 (arXiv 2310.07911).

Head i has K_i = V_i = Y W^i: softmax(X W_Q^i K_i^T / sqrt(d)) K_i; the output is concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d, or 3 C^2 if n d = kdim = C.
"""

from torch import Tensor

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.written_out import WrittenOut, head_projections


class SharedKeyValueAttention(Attention):
    """One projection computes keys and values, so the cache holds one tensor for both."""

    keys_are_values = True

    def build(self) -> None:
        width = self.num_heads * self.head_dim
        self.kv_proj = self.input_linear(self.kdim, width)
        self.q_proj = self.input_linear(self.embed_dim, width)
        self.out_proj = self.output_linear()

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one tensor (B, n, S, d) for both; ``value`` equals ``key``."""
        shared = split_heads(self.kv_proj(key), self.num_heads)
        return shared, shared

    def written_out(self) -> WrittenOut:
        """Keys and values have the same weights."""
        query = head_projections(self.q_proj, self.num_heads)
        shared = head_projections(self.kv_proj, self.num_heads)
        return WrittenOut.of(self, query, shared, shared)

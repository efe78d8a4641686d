"""Shared keys and values: the SKV of Xue & Aletras 2023, section 4.

Head i: K_i = V_i = Y W^i; softmax(X W_Q^i K_i^T / sqrt(d)) K_i; output concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d; with n d = C: 3 C^2.
"""

from torch import Tensor

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.written_out import WrittenOut, head_projections


class SharedKeyValueAttention(Attention):
    """One projection serves as keys and values, so one tensor is computed and cached."""

    keys_are_values = True

    def build(self) -> None:
        width = self.num_heads * self.head_dim
        self.kv_proj = self.input_linear(self.kdim, width)
        self.q_proj = self.input_linear(self.embed_dim, width)
        self.out_proj = self.output_linear()

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one (B, n, S, d), as both; ``value`` is the same input."""
        shared = split_heads(self.kv_proj(key), self.num_heads)
        return shared, shared

    def written_out(self) -> WrittenOut:
        """One projection is key and value."""
        query = head_projections(self.q_proj, self.num_heads)
        shared = head_projections(self.kv_proj, self.num_heads)
        return WrittenOut.of(self, query, shared, shared)

"""Shared keys and values (SKV): Xue & Aletras 2023, section 4 (arXiv 2310.07911).

Keys are also values. Heads of group j share K_j = V_j = Y W^j, and head i of the group is
softmax(X W_Q^i K_j^T / sqrt(d)) K_j; the output is concat(heads) W_O. In the paper every head is a
group; with fewer groups the cache shrinks further (arXiv 2606.04032).
Parameters without biases for g groups: 2 C n d + kdim g d; 3 C^2 if g = n and n d = kdim = C.
"""

from torch import Tensor

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.equations import Result, attend_heads, heads_of
from fairseq_mhe.attention.plain_heads import PlainHeads, Projection


class SharedKeyValueAttention(Attention):
    """One projection computes keys and values, so the cache holds one tensor for both.

    ``kv_heads`` is the number of groups g (default: n).
    """

    OPTIONS = (
        *Attention.OPTIONS,
        options.kv_heads(default=lambda layer: layer.num_heads),
    )
    keys_are_values = True

    def build(self) -> None:
        self.kv_proj = self.input_linear(self.kdim, self.kv_heads * self.head_dim)
        self.q_proj = self.input_linear(self.embed_dim, self.all_heads_dim)
        self.out_proj = self.output_linear()

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one tensor (B, g, S, d) for both; ``value`` equals ``key``."""
        shared = split_heads(self.kv_proj(key), self.kv_heads)
        return shared, shared

    def plain_heads(self) -> PlainHeads:
        """Keys and values have the same weights."""
        query = Projection.of(self.q_proj, self.num_heads)
        shared = Projection.of(self.kv_proj, self.kv_heads)
        return PlainHeads.of(self, query, shared, shared)

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        queries = heads_of(self.q_proj, x, self.num_heads)
        shared = heads_of(self.kv_proj, y, self.kv_heads)
        return attend_heads(queries, shared, shared, mask, self.out_proj)

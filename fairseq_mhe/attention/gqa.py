"""Grouped-query attention, Ainslie et al. 2023, section 2.2; multi-query, Shazeer 2019, section 3.

Head i of group j: softmax(X W_Q^i (Y W_K^j)^T / sqrt(d)) Y W_V^j, with n / g heads a group; MQA has
one group. Parameters without biases: 2 C n d + kdim g d + vdim g d; for MQA with n d = C: 2 C^2 + 2
C d.
"""

import math

from fairseq_mhe.attention.base import Attention, Option

_GROUPS = (
    "key/value heads, a divisor of the number of heads "
    "(default: 2, or 1 where that number is odd)"
)


class MultiQueryAttention(Attention):
    """Every head has its own query; all read one key and one value head."""

    projects_together = True

    def build(self) -> None:
        self.project(self.num_heads, kept=1)


class GroupedQueryAttention(MultiQueryAttention):
    """g key and value heads, each read by n / g heads.

    g is 2 (1 where the number of heads is odd) unless given: 1 is MQA, ``num_heads`` is MHA.
    """

    OPTIONS = (*Attention.OPTIONS, Option("attention_kv_heads", _GROUPS))
    kv_heads: int | None

    def build(self) -> None:
        if self.kv_heads is None:
            self.kv_heads = math.gcd(2, self.num_heads)
        if self.num_heads % self.kv_heads:
            sizes = f"kv_heads {self.kv_heads} does not divide num_heads {self.num_heads}"
            raise ValueError(f"{sizes}: choose a divisor")
        self.project(self.num_heads, kept=self.kv_heads)

"""Grouped-query attention: Ainslie et al. 2023, section 2.2; multi-query: Shazeer 2019, section 3.

The n / g heads of group j share a key and a value head; MQA has one group. Head i of group j is
softmax(X W_Q^i (Y W_K^j)^T / sqrt(d)) Y W_V^j; the output is concat(heads) W_O.
Parameters without biases: 2 C n d + kdim g d + vdim g d; MQA with n d = C: 2 C^2 + 2 C d.
"""

import math

from torch import Tensor

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.equations import Result, attend_heads, heads_of


class GroupedQueryAttention(Attention):
    """Every n / g heads share one of g = ``kv_heads`` key and value heads.

    The default g is 2, or 1 if n is odd. With g = 1 this is MQA, with g = n it is MHA.
    """

    OPTIONS = (
        *Attention.OPTIONS,
        options.kv_heads(default=lambda layer: math.gcd(2, layer.num_heads)),
    )
    plain_heads = Attention.plain_heads

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        queries = heads_of(self.q_proj, x, self.num_heads)
        keys = heads_of(self.k_proj, y, self.kv_heads)
        values = heads_of(self.v_proj, y, self.kv_heads)
        return attend_heads(queries, keys, values, mask, self.out_proj)


class MultiQueryAttention(GroupedQueryAttention):
    """Every head has its own queries; all heads read one key head and one value head."""

    OPTIONS = Attention.OPTIONS
    one_key_value = True
    plain_heads = Attention.plain_heads

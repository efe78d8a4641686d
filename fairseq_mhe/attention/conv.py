"""Attention that scores each key with the two before it: ``mhe_conv``, ``mqa_conv``, ``mha_conv``.

Head i has a filter with taps e_i0, e_i1, e_i2 in R^d. Query t gives key s the score
sum_j (Q_i * e_ij)_t (K_i)_{s-j}^T / sqrt(d), j = 0, 1, 2, with zeros for keys before the sentence.
Head i is softmax(scores) V_i; the output is concat(heads) W_O. ``mha_conv`` gives each head its own
projections. In ``mhe_conv`` all heads share Q = X W_Q, K = Y W_K and V = Y W_V as in Xue & Aletras
2023, section 3, and a head's filter is its three MHE embeddings. In ``mqa_conv`` heads have their
own queries and share K and V, as in multi-query attention. docs/attention.md lists earlier work,
from Nguyen & Joty 2018 on.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C; of ``mqa_conv`` 2 C n d + kdim d +
vdim d + 3 n d; of ``mha_conv`` 2 C n d + kdim n d + vdim n d + 3 n d.

A filter acts on each dimension alone. So the cache holds plain keys, which ``attend`` filters.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fairseq_mhe.attention import equations
from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.filters import TAPS, filtered
from fairseq_mhe.attention.fused import Attended, attend_scores, scores_of
from fairseq_mhe.attention.options import shared_init
from fairseq_mhe.attention.products import product


class MHAConv(Attention):
    """Every head has its own projections and its own filter."""

    not_foldable_because = "its scores read each key together with the keys before it"
    linear_heads = False

    def build(self) -> None:
        super().build()
        # Filters start with norm 1 in each dimension, and with random signs, so that heads differ.
        shape = self.num_heads, TAPS, self.head_dim
        # In place, since on the "meta" device other functions spend a second on imports of torch.
        signs = torch.empty(shape).random_(2).mul_(2).sub_(1)  # (n, 3, d), 1 or -1
        self.taps = nn.Parameter(signs.mul_(TAPS**-0.5))  # (n, 3, d), e_ij

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> Attended:
        """Attend to filtered keys. query: (N, 1 or n, T, d); key, value: (B, 1 or n, S, d)."""
        padding = options.get("key_padding_mask")
        if padding is not None:
            key = key.masked_fill(padding.bool()[:, None, :, None], 0.0)
        if query.size(2) == 1:  # filtering one query is cheaper than filtering all keys
            return self.attend_once(query, key, value, **options)
        taps = self.taps.transpose(0, 1).unsqueeze(2)  # (3, n, 1, d)
        heads = self.num_heads
        query, value = query.expand(-1, heads, -1, -1), value.expand(-1, heads, -1, -1)
        return super().attend(query, filtered(key, taps, dim=-2), value, **options)

    def attend_once(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> Attended:
        """Attend with filtered queries: score s is the sum of part j's score of key s - j."""
        parts = scores_of(query * self.taps, key, self.scaling)  # (N, n, 3, S)
        scores = parts[:, :, :1]  # (N, n, 1, S)
        for j in range(1, TAPS):
            shifted = pad(parts[:, :, j : j + 1], (j, 0))[..., : key.size(2)]
            scores = scores + shifted
        return attend_scores(scores, lambda weights: product(weights, value), **options)

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> equations.Result:
        queries = equations.heads_of(self.q_proj, x, self.query_heads)
        keys = equations.heads_of(self.k_proj, y, self.kv_heads)
        values = equations.heads_of(self.v_proj, y, self.kv_heads)
        read = []
        for i, taps in enumerate(self.taps):
            read.append(equations.filtered(keys[i % len(keys)], taps))
        return equations.attend_heads(queries, read, values, mask, self.out_proj)


class MHEConv(MHAConv):
    """All heads share one query, key and value projection, and differ only in their filters."""

    OPTIONS = (*Attention.OPTIONS, shared_init("head"))
    one_query = one_key_value = True


class MQAConv(MHAConv):
    """Every head has its own queries and its own filter; all heads read one key and value head."""

    one_key_value = True

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

A filter acts on each dimension alone, so the code multiplies queries by it and caches plain keys.
In training on a GPU it filters each head's keys, for fewer kernel launches and heads d wide.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.mhe import init_option
from fairseq_mhe.attention.written_out import WrittenOut

#: Keys that one score reads: as many as a head of MHE has embeddings.
TAPS = 3


class MHAConv(Attention):
    """Every head has its own projections and its own filter."""

    no_heads = "its scores read each key together with the keys before it"
    linear_heads = False
    projects_together = True
    #: Whether all heads share one query projection, and one key and one value projection.
    shares_queries = shares_keys_values = False

    def build(self) -> None:
        query_heads = 1 if self.shares_queries else self.num_heads
        kv_heads = 1 if self.shares_keys_values else self.num_heads
        self.project(query_heads, kv_heads=kv_heads)
        # Filters start with norm 1 in each dimension, and with random signs, so that heads differ.
        shape = self.num_heads, TAPS, self.head_dim
        bits = torch.randint(0, 2, shape)  # (n, 3, d)
        # In place, since on the "meta" device other products spend a second on imports of torch.
        signs = bits.to(torch.get_default_dtype()).mul_(2).sub_(1)
        self.taps = nn.Parameter(signs.mul_(TAPS**-0.5))  # (n, 3, d), e_ij

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, 3, d): Q_i * e_ij."""
        if self._computed is not None and x.is_cuda:
            return self.queries_by_one_product(x, self.taps).unflatten(3, (TAPS, -1))
        projected = split_heads(self.q_proj(x), self.query_heads)  # (B, 1 or n, T, d)
        return projected.unsqueeze(3) * self.taps.unsqueeze(1)

    def queries_keys_values(
        self, query: Tensor, memory: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, filtered keys and values, all with n heads."""
        q, k, v = super().queries_keys_values(query, memory, padding)  # 1 or n heads each
        if padding is not None:
            k = k.masked_fill(padding.bool()[:, None, :, None], 0.0)
        k = pad(k, (0, 0, TAPS - 1, 0))  # zeros before the sentence
        windows = k.unfold(2, TAPS, 1)  # (B, 1 or n, S, d, 3)
        # `unfold` puts the key itself last, so the taps are reversed: (n, 1, d, 3).
        taps = self.taps.flip(1).transpose(1, 2).unsqueeze(1)
        k = (windows * taps).sum(dim=4)  # (B, n, S, d)
        all_heads = (-1, self.num_heads, -1, -1)
        return q.expand(all_heads), k, v.expand(all_heads)

    def written_out(self) -> WrittenOut:
        """Heads whose taps 1 and 2 are 0, as after a conversion, are ordinary heads."""
        if self.taps[:, 1:].any():
            return super().written_out()  # raises UserError
        heads = WrittenOut.of_projections(self)
        factors = self.taps[:, 0].detach().double()  # (n, d)
        query = heads.query * factors.unsqueeze(2)
        bias = heads.query_bias * factors
        return replace(heads, query=query, query_bias=bias)


class MHEConv(MHAConv):
    """All heads share one query, key and value projection, and differ only in their filters."""

    OPTIONS = (*Attention.OPTIONS, init_option("head"))
    shares_queries = shares_keys_values = True


class MQAConv(MHAConv):
    """Every head has its own queries and its own filter; all heads read one key and value head."""

    shares_keys_values = True

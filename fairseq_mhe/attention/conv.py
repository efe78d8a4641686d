"""Attention whose heads read each key together with the two before it, by a filter of their own.

Head i has e_i0, e_i1, e_i2 in R^d and gives the key at position s the score
sum_j (Q_i * e_ij) (K_i)_{s-j}^T / sqrt(d), j = 0, 1, 2; keys before the sentence begins are 0; then
softmax(scores) V_i, and output concat(heads) W_O. In ``mhe_conv`` Q = X W_Q, K = Y W_K and V = Y
W_V are shared by all heads as in Xue & Aletras 2023, section 3, and the filters are MHE's three
embeddings a head; in ``mha_conv`` every head has its own projections. docs/attention.md says what
came before, from Nguyen & Joty 2018 on.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C; of ``mha_conv`` 2 C n d + kdim n d
+ vdim n d + 3 n d.

The filters act per channel, so they move to the queries, and keys are cached as they are. Training
on a GPU filters the keys of each head instead: that starts fewer kernels, and heads stay d wide.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fairseq_mhe.attention.base import Attention, shared_projection_init, split_heads
from fairseq_mhe.attention.written_out import WrittenOut

#: Keys that are read together: as many as MHE has embeddings a head.
TAPS = 3


class MHAConv(Attention):
    """Projections and a filter for every head."""

    no_heads = "it reads keys together with those before them"
    linear_heads = False
    projects_together = True
    #: One query, key and value head serves all filters.
    one_projection = False

    def build(self) -> None:
        # Filters begin with random signs, so that heads differ, and norm 1.
        heads = 1 if self.one_projection else self.num_heads
        self.project(heads, kept=heads)
        shape = self.num_heads, TAPS, self.head_dim
        ones = torch.randint(0, 2, shape)  # (n, 3, d), 0 or 1
        # In place: without memory ("meta"), a new tensor's product imports half of torch first.
        signs = ones.to(torch.get_default_dtype()).mul_(2).sub_(1)
        self.taps = nn.Parameter(signs.mul_(TAPS**-0.5))  # (n, 3, d), e_ij

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, 3, d): each head's query times each tap."""
        if self._computed is not None and x.is_cuda:
            return self.queries_at_once(x).unflatten(3, (TAPS, -1))
        projected = split_heads(self.q_proj(x), self.query_heads)  # (B, 1 or n, T, d)
        return projected.unsqueeze(3) * self.taps.unsqueeze(1)

    def heads_weight(self) -> Tensor:
        """(n 3 d, C): W_Q by each tap."""
        weight = self.q_proj.weight.unflatten(0, (-1, 1, self.head_dim))
        taps = self.taps.unsqueeze(3)  # (n, 3, d, 1)
        return (weight * taps).flatten(0, 2)

    def heads_bias(self) -> Tensor:
        """(n 3 d,): the bias of W_Q by each tap."""
        bias = self.q_proj.bias.unflatten(0, (-1, 1, self.head_dim))
        return (bias * self.taps).flatten()

    def projected(
        self, query: Tensor, memory: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """n heads each, with keys filtered."""
        q, k, v = super().projected(query, memory, padding)  # 1 or n heads each
        if padding is not None:
            k = k.masked_fill(padding.bool()[:, None, :, None], 0.0)
        k = pad(k, (0, 0, TAPS - 1, 0))  # zeros before the sentence
        together = k.unfold(2, TAPS, 1)  # (B, 1 or n, S, d, 3)
        # The own key's tap last: (n, 1, d, 3).
        taps = self.taps.flip(1).transpose(1, 2).unsqueeze(1)
        k = (together * taps).sum(dim=4)  # (B, n, S, d)
        every = (-1, self.num_heads, -1, -1)
        return q.expand(every), k, v.expand(every)

    def written_out(self) -> WrittenOut:
        """Heads that read no key before their own, as after a conversion, are ordinary ones."""
        if self.taps[:, 1:].any():
            return super().written_out()  # the error
        heads = WrittenOut.of_projections(self)
        factors = self.taps[:, 0].detach().double()  # (n, d)
        query, bias = heads.query * factors.unsqueeze(2), heads.query_bias * factors
        return replace(heads, query=query, query_bias=bias)


class MHEConv(MHAConv):
    """One query, key and value head; filters are all that tells heads apart."""

    OPTIONS = (*Attention.OPTIONS, shared_projection_init("head"))
    one_projection = True

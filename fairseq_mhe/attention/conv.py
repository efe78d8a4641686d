"""Attention whose heads read each key together with the two before it, by a filter of their own.

Head i has e_i0, e_i1, e_i2 in R^d and gives the key at position s the score
sum_j (Q_i * e_ij) (K_i)_{s-j}^T / sqrt(d), j = 0, 1, 2; keys before the sentence begins are 0; then
softmax(scores) V_i, and output concat(heads) W_O. In ``mhe_conv`` Q = X W_Q, K = Y W_K and V = Y
W_V are shared by all heads as in Xue & Aletras 2023, section 3, and the filters are MHE's three
embeddings a head; in ``mha_conv`` every head has its own projections.
Depthwise convolutions of width 3 over each head's keys (and queries and values) are those of So et
al. 2021 (Primer, arXiv 2109.08668, section 4.2), sums over scores of neighbouring keys those of
Golovneva et al. 2025 (Multi-Token Attention, arXiv 2504.00927, section 3.1); that filters are what
tells heads apart, and all that does, is this project's own.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C; of ``mha_conv`` 2 C n d + kdim n d
+ vdim n d + 3 n d.

The filters act per channel, so they move to the queries, and keys are cached as they are.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.fitting import Fitted, Parameters, Trained, means
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.attention.mhe import factors_of_mean, factors_of_scores
from fairseq_mhe.attention.shared import SharedProjectionAttention

#: Keys that are read together: as many as MHE has embeddings a head.
TAPS = 3


class MHAConv(Attention):
    """Projections and a filter for every head."""

    no_heads = "it reads keys together with those before them"
    linear_heads = False
    taps: nn.Parameter  # (n, 3, d), e_ij

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        self.make_projections()
        # Signs, so that heads start with truly different filters, of size 1 together.
        ones = torch.randint(0, 2, (num_heads, TAPS, self.head_dim))  # (n, 3, d), each 0 or 1
        signs = ones.to(torch.get_default_dtype()) * 2 - 1
        self.taps = nn.Parameter(signs * TAPS**-0.5)

    def make_projections(self) -> None:
        """One of each for every head."""
        self.project(self.num_heads, kept=self.num_heads)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, 3 d): each head's query times each tap, for `neighbours`."""
        projected = split_heads(self.q_proj(x), self.query_heads)  # (B, 1 or n, T, d)
        return (projected.unsqueeze(3) * self.taps.unsqueeze(1)).flatten(3)

    def written_out(self) -> Heads:
        """Heads that read no key before their own, as after `fitted`, are ordinary ones."""
        if self.taps[:, 1:].any():
            return super().written_out()
        heads, factors = Heads.of_projections(self), self.taps[:, 0].detach().double()
        query, bias = heads.query * factors.unsqueeze(2), heads.query_bias * factors
        return replace(heads, query=query, query_bias=bias)


class MHEConv(MHAConv, SharedProjectionAttention):
    """One query, key and value head; filters are all that tells heads apart."""

    start = "head"

    def make_projections(self) -> None:
        """One of each for all heads."""
        self.project(1, kept=1)

    def fitted(self, trained: Trained) -> Fitted:
        """As MHE-Mul comes closest, without neighbours."""
        return Fitted(_first_taps(*factors_of_scores(self, trained)))

    def pooled(self, heads: Heads) -> Parameters:
        """Means of the heads, and the factors that bring them closest to each."""
        return _first_taps(means(self, heads), factors_of_mean(heads.of_width(self.head_dim).query))


def _first_taps(parameters: Parameters, factors: Tensor) -> Parameters:
    """Factors (n, d) of each head's query for a key itself, and nothing for those before it."""
    nothing = torch.zeros_like(factors)
    return {**parameters, "taps": torch.stack((factors, *[nothing] * (TAPS - 1)), dim=1)}

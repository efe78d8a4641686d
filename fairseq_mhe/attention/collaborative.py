"""Collaborative multi-head attention: Cordonnier, Loukas & Jaggi 2020 (arXiv 2006.16362).

All heads share queries X W_Q and keys Y W_K of width D. Head i weighs their dimensions by a mixing
vector m_i in R^D (section 3.1, equation 7): softmax(X W_Q diag(m_i) W_K^T Y^T / sqrt(d)) Y W_V^i;
the output is concat(heads) W_O. Parameters without biases: (C + kdim + n) D for the scores, vdim
n d + n d C for the rest.

The paper multiplies the query by m_i, the authors' fairseq fork the key. We multiply the query, so
that one key head serves all heads. As in that fork, the scale is d^-0.5 whatever D is (its d is
always C / n), and mixing vectors start Xavier uniform.

Biases add terms to the scores, of which softmax ignores all but Y v_i, v_i = W_K^i b_Q^i in R^kdim
(section 3.3). The cache holds this content term, one number for each head, beside the key.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.equations import Result, affine, average, heads_of, scores_of
from fairseq_mhe.attention.plain_heads import PlainHeads, Projection


class CollaborativeAttention(Attention):
    """All heads share queries and keys of width D; every head has its own values.

    The default D is C / 4, which lost no BLEU in the authors' WMT17 experiment.
    """

    OPTIONS = (*Attention.OPTIONS, options.COLLABORATIVE_DIM)
    linear_heads = False
    collaborative_dim: int

    def build(self) -> None:
        width = self.collaborative_dim
        # Both layers are made before they are initialised: a seed gives the weights that it gave.
        self.k_proj = nn.Linear(self.kdim, width, bias=False)
        self.q_proj = nn.Linear(self.embed_dim, width, bias=False)
        for shared in (self.k_proj, self.q_proj):
            nn.init.xavier_uniform_(shared.weight, gain=self.gain(shared.in_features))
        self.mixing = nn.Parameter(torch.empty(self.num_heads, width))  # (n, D), m_i
        nn.init.xavier_uniform_(self.mixing)
        self.v_proj = self.input_linear(self.vdim, self.num_heads * self.head_dim)
        self.out_proj = self.output_linear()
        self.content_proj: nn.Linear | None = None  # (n, kdim), v_i / sqrt(d)
        if self.bias:
            self.content_proj = nn.Linear(self.kdim, self.num_heads, bias=False)
            nn.init.zeros_(self.content_proj.weight)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, D): (X W_Q) * m_i; with biases n more numbers select Y v_i."""
        shared = split_heads(self.q_proj(x), 1).contiguous()  # (B, 1, T, D)
        mixed = shared * self.mixing.unsqueeze(1)  # (B, n, T, D)
        if self.content_proj is None:
            return mixed
        selectors = self.selectors().unsqueeze(1).expand(*mixed.shape[:3], -1)
        return torch.cat((mixed, selectors), dim=-1)  # (B, n, T, D + n)

    def selectors(self) -> Tensor:
        """(n, n): row i selects Y v_i from n content terms, which contain the scale already."""
        return self.mixing.new_ones(self.num_heads).diag() / self.scaling

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, 1, S, D or, with biases, D + n), (B, n, S, d)."""
        shared = self.k_proj(key)  # (S, B, D)
        if self.content_proj is not None:
            shared = torch.cat((shared, self.content_proj(key)), dim=-1)  # (S, B, D + n)
        values = split_heads(self.v_proj(value), self.num_heads)
        return split_heads(shared, 1), values

    def plain_heads(self) -> PlainHeads:
        """Queries contain m_i. The v_i are n more rows of the key's weight; query biases select."""
        query, key = Projection.of(self.q_proj), Projection.of(self.k_proj)
        value = Projection.of(self.v_proj, self.num_heads)
        heads = replace(PlainHeads.of(self, query, key, value), query_factors=self.mixing)
        if self.content_proj is None:
            return heads
        n, width = self.mixing.shape
        content = Projection.of(self.content_proj).weight  # (1, n, kdim)
        return replace(
            heads,
            query=pad(heads.query, (0, 0, 0, n)),  # (1, D + n, C)
            query_factors=pad(self.mixing, (0, n)),  # (n, D + n)
            query_bias=pad(self.selectors(), (width, 0)),  # (n, D + n)
            key=torch.cat((heads.key, content), dim=1),  # (1, D + n, kdim)
        )

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        """Equation 7 with mixed keys, plus the content term of section 3.3."""
        queries, keys = affine(self.q_proj, x), affine(self.k_proj, y)  # (T or S, B, D)
        mixed = [keys * mixing for mixing in self.mixing]
        scores = scores_of([queries], mixed, self.head_dim)
        if self.content_proj is not None:  # its weight contains the scale already
            content = affine(self.content_proj, y).permute(2, 1, 0)  # (n, B, S)
            scores = [score + content[i].unsqueeze(1) for i, score in enumerate(scores)]
        heads, weights = average(scores, heads_of(self.v_proj, y, self.num_heads), mask)
        return affine(self.out_proj, heads), weights

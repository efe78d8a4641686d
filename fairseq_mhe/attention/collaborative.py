"""Collaborative multi-head attention: Cordonnier, Loukas & Jaggi 2020, section 3.1, equation 7 (arXiv 2006.16362).

Scores of head i: X W_Q diag(m_i) W_K^T Y^T / sqrt(d), with W_Q, W_K in R^{C x D} shared by all
heads and a mixing vector m_i in R^D a head; values as in MHA; output concat(heads) W_O. Parameters
without biases: (C + kdim + n) D for the scores, vdim n d + n d C for the rest.

The mixing vectors stand between query and key, so it makes no difference to the result which of the two they multiply:
the paper writes the query, the authors' fairseq fork the key. On the query, one key head serves all heads. As in that
fork, scores are scaled by (C / n)^-0.5 whatever D is, and mixing vectors start Xavier uniform.

With biases, the query's and key's leave one term that softmax does not ignore: 1 v_i^T Y^T with v_i
= W_K^i b_Q^i in R^{kdim} (section 3.3). It is a projection of the key input to one number a head,
and is kept beside the key.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.base import Attention, join_heads, split_heads
from fairseq_mhe.attention.mha import PACKED_GAIN


class CollaborativeAttention(Attention):
    """Shared queries and keys of width D, mixed by every head; values per head; one key head is cached.

    Args:
        collaborative_dim: D (default: C / 4, which lost no BLEU in the authors' WMT17 experiment).
    """

    options = ("collaborative_dim",)

    def __init__(
        self, embed_dim: int, num_heads: int, *, collaborative_dim: int | None = None, **common: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **common)
        width = max(1, embed_dim // 4) if collaborative_dim is None else collaborative_dim
        if width < 1:
            raise ValueError(f"collaborative_dim must be positive, not {width}")
        self.collaborative_dim = width
        self.key_heads, self.value_heads = 1, num_heads
        gain = PACKED_GAIN if self.kdim == self.vdim == embed_dim else 1.0
        self.k_proj = nn.Linear(self.kdim, width, bias=False)
        self.q_proj = nn.Linear(embed_dim, width, bias=False)
        for projection in (self.k_proj, self.q_proj):
            nn.init.xavier_uniform_(projection.weight, gain=gain)
        self.mixing = nn.Parameter(torch.empty(num_heads, width))  # (n, D), m_i
        nn.init.xavier_uniform_(self.mixing)
        self.v_proj = self.linear(self.vdim, num_heads * self.head_dim, gain)
        self.out_proj = self.output_linear()
        self.content_proj: nn.Linear | None = None  # (n, kdim), v_i
        if self.bias:
            self.content_proj = nn.Linear(self.kdim, num_heads, bias=False)
            nn.init.zeros_(self.content_proj.weight)
        self.key_head_dim = width + (num_heads if self.bias else 0)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, D): (X W_Q) * m_i; with biases (B, n, T, D + n), head i picking its content term."""
        shared = self.q_proj(x).transpose(0, 1).contiguous().unsqueeze(1)  # (B, 1, T, D)
        mixed = shared * self.mixing.unsqueeze(1)  # (B, n, T, D)
        if self.content_proj is None:
            return mixed
        picks = (
            torch.eye(self.num_heads, dtype=mixed.dtype, device=mixed.device) / self.scaling
        )  # (n, n)
        picks = picks.unsqueeze(1).expand(*mixed.shape[:-1], -1)  # (B, n, T, n)
        return torch.cat((mixed, picks), dim=-1)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, 1, S, D), with biases (B, 1, S, D + n), and (B, n, S, d)."""
        shared = self.k_proj(key)  # (S, B, D)
        if self.content_proj is not None:
            shared = torch.cat((shared, self.content_proj(key)), dim=-1)  # (S, B, D + n)
        return shared.transpose(0, 1).unsqueeze(1), split_heads(self.v_proj(value), self.num_heads)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C)."""
        return self.out_proj(join_heads(heads))

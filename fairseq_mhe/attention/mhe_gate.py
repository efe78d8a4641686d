"""MHE-Mul with a gate per head, computed from the query, in place of the value embedding.

q_i = (X W_Q) * (1 + e_i^Q); head i: z_i * softmax(q_i (Y W_K)^T / sqrt(d)) Y W_V with the gate
z_i = 2 sigmoid((X W_Q) . e_i^Z), one number a query; output concat(heads) W_O. The embeddings e_i^Q
and e_i^Z start from N(0, 0.02), as MHE's (Xue & Aletras 2023, section 3), so that gates start at 1.
A gate a head after the attention is that of Qiu et al. 2025 (Gated Attention, arXiv 2505.06708,
"headwise"), whose gate has a projection of its own and no factor of 2.
Parameters without biases: C d + kdim d + vdim d + 2 n d + n d C.

The gate is not linear in the input: there is no stock form to fold to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.composed import ComposedQueryAttention, as_linear
from fairseq_mhe.attention.mhe import STD, check_spread, head_embedding
from fairseq_mhe.attention.sublayer import Option


class MHEGate(ComposedQueryAttention):
    """One factor a channel for each head's query, and one gate a head and query."""

    OPTIONS: tuple[Option, ...] = (*ComposedQueryAttention.OPTIONS, STD)
    start = "packed"
    no_heads = "its gate depends on the query, which no weight does"
    head_embedding_std: float
    folded_gate_proj: nn.Linear | None

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        std = self.head_embedding_std
        check_spread(std)
        self.project(1, kept=1)
        self.query_embedding = head_embedding(num_heads, self.head_dim, std)  # (n, d), e^Q
        self.gate_embedding = head_embedding(num_heads, self.head_dim, std)  # (n, d), e^Z
        self.folded_gate_proj = None

    def composed(self) -> tuple[Tensor, Tensor | None]:
        """(n, d, C), (n, d): the shared projection, times 1 + e^Q."""
        factor, bias = 1 + self.query_embedding, self.q_proj.bias
        return self.q_proj.weight * factor.unsqueeze(2), None if bias is None else bias * factor

    def gates(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, 1): 2 sigmoid((X W_Q) . e^Z)."""
        if self.folded_gate_proj is None:
            scores = F.linear(x, *self._gate())  # (T, B, n)
        else:
            scores = self.folded_gate_proj(x)
        return 2 * scores.sigmoid().permute(1, 2, 0).unsqueeze(-1)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """The gates' projection, too, is composed once for all."""
        super().make_generation_fast_(**kwargs)
        with torch.no_grad():
            self.folded_gate_proj = as_linear(*self._gate())

    def train(self, mode: bool = True) -> MHEGate:
        """The gates' projection is forgotten too."""
        if mode:
            self.folded_gate_proj = None
        super().train(mode)
        return self

    def _gate(self) -> tuple[Tensor, Tensor | None]:
        """Weight (n, C) and bias (n,) of what the sigmoid takes."""
        embedding, bias = self.gate_embedding, self.q_proj.bias
        return embedding @ self.q_proj.weight, None if bias is None else embedding @ bias

    written_out = Attention.written_out

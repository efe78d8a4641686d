"""MHE attention, multiplicative and additive: Xue & Aletras, Findings of EMNLP 2023, section 3 (arXiv 2310.07911).

Q = X W_Q, K = Y W_K, V = Y W_V with each W in R^{C x d}, shared by all heads; head i has embeddings e_i^Q, e_i^K, e_i^V
in R^d, and is softmax(psi(Q, e_i^Q) psi(K, e_i^K)^T / sqrt(d)) psi(V, e_i^V); output concat(heads) W_O.
MHE-Mul: psi(A, b) = A * (1 + b).  MHE-Add: psi(A, b) = A + b.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C.

psi acts per channel and the projections are shared, so one key head and one value head serve all
heads exactly: what psi does to the keys moves to the queries, what it does to the values moves
behind the weighted sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.base import Attention, join_heads
from fairseq_mhe.attention.mha import PACKED_GAIN

#: How the shared projections may begin: the gain of Xavier's uniform distribution from the input's
#: width c, d and n.
SHARED_PROJECTION_INITS: dict[str, Callable[[int, int, int], float]] = {
    "packed": lambda c, d, n: PACKED_GAIN,
    "xavier": lambda c, d, n: 1.0,
    # As large as the weights of one head in MHA, whose projection is n times as high.
    "head": lambda c, d, n: PACKED_GAIN * ((c + d) / (c + n * d)) ** 0.5,
}
#: fairseq's attribute of parameters that an optimizer treats apart, and its value at the head
#: embeddings.
PARAM_GROUP = "head_embeddings"


class _HeadEmbeddingAttention(Attention):
    """What both share: projections to one head, three embeddings a head, one cached key head and one value head.

    Args:
        head_embedding_std: standard deviation of the embeddings' initial values N(0, std).
        shared_projection_init: a key of ``SHARED_PROJECTION_INITS``.
    """

    options: tuple[str, ...] = ("head_embedding_std", "shared_projection_init")
    query_embedding: nn.Parameter  # (n, d), the paper's e^Q
    key_embedding: nn.Parameter  # (n, d), e^K
    value_embedding: nn.Parameter  # (n, d), e^V

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        head_embedding_std: float = 0.02,
        shared_projection_init: str = "packed",
        **common: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **common)
        if head_embedding_std < 0:
            raise ValueError(
                f"head_embedding_std must not be negative, but is {head_embedding_std}"
            )
        if shared_projection_init not in SHARED_PROJECTION_INITS:
            known = ", ".join(SHARED_PROJECTION_INITS)
            raise ValueError(
                f"unknown shared_projection_init {shared_projection_init!r}; choose one of: {known}"
            )
        gain = SHARED_PROJECTION_INITS[shared_projection_init]
        self.key_heads = self.value_heads = 1
        self.k_proj = self.linear(
            self.kdim, self.head_dim, gain(self.kdim, self.head_dim, num_heads)
        )
        self.v_proj = self.linear(
            self.vdim, self.head_dim, gain(self.vdim, self.head_dim, num_heads)
        )
        self.q_proj = self.linear(
            embed_dim, self.head_dim, gain(embed_dim, self.head_dim, num_heads)
        )
        self.out_proj = self.output_linear()
        for name in ("query_embedding", "key_embedding", "value_embedding"):
            embedding = nn.Parameter(torch.empty(num_heads, self.head_dim))
            nn.init.normal_(embedding, std=head_embedding_std)
            embedding.param_group = PARAM_GROUP  # type: ignore[attr-defined]
            self.register_parameter(name, embedding)

    def shared_query(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, 1, T, d), contiguous, so that what is made of it for every head is too."""
        length, batch, _ = x.shape
        # reshape, because a single step's transpose calls itself contiguous but keeps strides that
        # products inherit.
        return self.q_proj(x).transpose(0, 1).reshape(batch, 1, length, self.head_dim)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, 1, S, d) twice: the shared K and V, without embeddings."""
        return self.k_proj(key).transpose(0, 1).unsqueeze(1), self.v_proj(value).transpose(
            0, 1
        ).unsqueeze(1)


class MHEMul(_HeadEmbeddingAttention):
    """MHE-Mul. Both scores' factors sit on the query, (1 + e^V) on the head's output.

    Args:
        head_embedding_offset: the 1 in (1 + b), which keeps heads from vanishing where b is near 0.
    """

    options = (*_HeadEmbeddingAttention.options, "head_embedding_offset")

    def __init__(
        self, embed_dim: int, num_heads: int, *, head_embedding_offset: float = 1.0, **common: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **common)
        self.head_embedding_offset = head_embedding_offset

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): (X W_Q) * (1 + e_i^Q) * (1 + e_i^K)."""
        offset = self.head_embedding_offset
        factor = (offset + self.query_embedding) * (offset + self.key_embedding)  # (n, d)
        return self.shared_query(x) * factor.unsqueeze(1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): each head times (1 + e_i^V), which any weights (dropped ones too) pass through."""
        factor = self.head_embedding_offset + self.value_embedding  # (n, d)
        return self.out_proj(join_heads(heads * factor.unsqueeze(1)))


class MHEAdd(_HeadEmbeddingAttention):
    """MHE-Add. e^Q is added to the query; e^K adds the same to all of a query's scores, which the softmax ignores; e^V
    is added to the head's output, times the weights' sum where dropout makes that differ from 1.
    """

    needs_row_sums = True

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): X W_Q + e_i^Q."""
        # e^K has no effect and a zero gradient. It stays in the graph because data-parallel
        # training wants a gradient for every parameter.
        shift = self.query_embedding + 0.0 * self.key_embedding  # (n, d)
        return self.shared_query(x) + shift.unsqueeze(1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): each head plus e_i^V."""
        shift = self.value_embedding.unsqueeze(1)  # (n, 1, d)
        return self.out_proj(join_heads(heads + (shift if row_sums is None else row_sums * shift)))

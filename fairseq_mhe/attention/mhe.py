"""MHE attention: Xue & Aletras, Findings of EMNLP 2023, section 3 (arXiv 2310.07911).

All heads share Q = X W_Q, K = Y W_K and V = Y W_V of width d. Head i has three embeddings in R^d:
softmax(psi(Q, e_i^Q) psi(K, e_i^K)^T / sqrt(d)) psi(V, e_i^V); the output is concat(heads) W_O.
MHE-Mul: psi(A, b) = A * (1 + b).  MHE-Add: psi(A, b) = A + b.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C.

psi acts on each dimension alone, so one key head and one value head serve all heads exactly: the
code applies the key's embedding to the query, and the value's embedding after the weighted sum.
``equation`` is the paper's form, which the tests compare with the code.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fairseq_mhe.attention.base import Attention, Option, init_option, join_heads
from fairseq_mhe.attention.equations import Result, affine, attend_heads
from fairseq_mhe.attention.plain_heads import PlainHeads

_STD_HELP = "spread of the head embeddings' initial values N(0, std) (default: 0.02)"
_OFFSET_HELP = "number added to a head embedding before multiplying (default: 1)"


class _HeadEmbeddingAttention(Attention):
    """All heads share one query, key and value projection; each head has three embeddings."""

    OPTIONS: tuple[Option, ...] = (
        *Attention.OPTIONS,
        init_option("packed"),
        Option("head_embedding_std", _STD_HELP, float, 0.02),
    )
    head_embedding_std: float

    def build(self) -> None:
        if not self.head_embedding_std >= 0:  # NaN, too
            std = self.head_embedding_std
            raise ValueError(f"head_embedding_std must be 0 or more, but is {std}")
        self.project(1, kv_heads=1)
        self.query_embedding = self.embedding()  # (n, d), e^Q
        self.key_embedding = self.embedding()  # (n, d), e^K
        self.value_embedding = self.embedding()  # (n, d), e^V

    def embedding(self) -> nn.Parameter:
        """Return a new embedding of each head, (n, d)."""
        embedding = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
        if not embedding.is_meta:  # else torch loads its compiler, for a second
            nn.init.normal_(embedding, std=self.head_embedding_std)
        return embedding

    def shared_query(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, 1, T, d): Q, copied to this order, since each head reads it."""
        length, batch, _ = x.shape
        return self.q_proj(x).transpose(0, 1).reshape(batch, 1, length, self.head_dim)


class MHEMul(_HeadEmbeddingAttention):
    """MHE-Mul: psi(A, b) = A * (1 + b).

    ``head_embedding_offset`` is the 1 in (1 + b). Without it heads start near 0, as b does.
    """

    OPTIONS = (
        *_HeadEmbeddingAttention.OPTIONS,
        Option("head_embedding_offset", _OFFSET_HELP, float, 1.0),
    )
    linear_heads = False
    head_embedding_offset: float

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): psi(Q) psi(K)^T = (Q * (1 + e_i^Q) * (1 + e_i^K)) K^T."""
        factors = self.factors(self.query_embedding) * self.factors(self.key_embedding)
        return self.shared_query(x) * factors.unsqueeze(1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): with weights A, A psi(V) = (A V) * (1 + e_i^V).

        W_O takes these factors, since it is smaller than the heads.
        """
        weight = self.out_proj.weight * self.factors(self.value_embedding).flatten()
        return linear(join_heads(heads), weight, self.out_proj.bias)

    def factors(self, embedding: Tensor) -> Tensor:
        """(n, d): 1 + e_i."""
        return self.head_embedding_offset + embedding

    def plain_heads(self) -> PlainHeads:
        """W_Q takes both factors of the scores, W_O takes the factor of the value."""
        heads = PlainHeads.of_projections(self)
        embeddings = self.query_embedding, self.key_embedding, self.value_embedding
        query, key, value = (self.factors(e.detach().double()) for e in embeddings)
        return replace(
            heads,
            query=heads.query * (query * key).unsqueeze(2),  # (n, d, C)
            query_bias=heads.query_bias * query * key,  # (n, d)
            output=heads.output * value.unsqueeze(1),  # (n, C, d)
        )

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        return _equation(
            self, lambda a, b: a * (self.head_embedding_offset + b), x, y, mask
        )


class MHEAdd(_HeadEmbeddingAttention):
    """MHE-Add: psi(A, b) = A + b."""

    needs_row_sums = True

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): psi(Q) psi(K)^T = psi(Q) K^T + psi(Q) e_i^K^T.

        Softmax ignores the second term, equal for all keys. But data-parallel training demands a
        gradient for e^K.
        """
        shift = self.query_embedding + 0.0 * self.key_embedding  # (n, d)
        return self.shared_query(x) + shift.unsqueeze(1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): with weights A, A psi(V) = A V + (row sum of A) e_i^V."""
        shift = self.value_embedding.unsqueeze(1)  # (n, 1, d)
        shift = shift if row_sums is None else row_sums * shift
        return self.out_proj(join_heads(heads + shift))

    def plain_heads(self) -> PlainHeads:
        """e^Q and e^V become biases of the query and value; e^K changes nothing."""
        heads = PlainHeads.of_projections(self)
        query = heads.query_bias + self.query_embedding.detach().double()  # (n, d)
        value = heads.value_bias + self.value_embedding.detach().double()  # (n, d)
        return replace(heads, query_bias=query, value_bias=value)

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        return _equation(self, lambda a, b: a + b, x, y, mask)


def _equation(layer: Any, psi: Any, x: Tensor, y: Tensor, mask: Tensor) -> Result:
    """Section 3 of the paper: each head has its own query, key and value."""
    queries, keys, values = [], [], []
    for i in range(layer.num_heads):
        queries.append(psi(affine(layer.q_proj, x), layer.query_embedding[i]))
        keys.append(psi(affine(layer.k_proj, y), layer.key_embedding[i]))
        values.append(psi(affine(layer.v_proj, y), layer.value_embedding[i]))
    heads, weights = attend_heads(queries, keys, values, mask)
    return affine(layer.out_proj, heads), weights

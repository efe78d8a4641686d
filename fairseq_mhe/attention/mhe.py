"""MHE attention: Xue & Aletras, Findings of EMNLP 2023, section 3 (arXiv 2310.07911).

All heads share Q = X W_Q, K = Y W_K and V = Y W_V of width d. Head i has three embeddings in R^d:
softmax(psi(Q, e_i^Q) psi(K, e_i^K)^T / sqrt(d)) psi(V, e_i^V); the output is concat(heads) W_O.
MHE-Mul: psi(A, b) = A * (1 + b).  MHE-Add: psi(A, b) = A + b.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C.

psi acts on each dimension alone, so one key head K and one value head V serve all heads exactly:
the code applies the key's embedding to the query, and the value's embedding after the weighted sum.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import Attention, join_heads
from fairseq_mhe.attention.equations import Result, affine, attend_heads
from fairseq_mhe.attention.few_shapes import linear
from fairseq_mhe.attention.fused import Attended
from fairseq_mhe.attention.plain_heads import PlainHeads


class _HeadEmbeddingAttention(Attention):
    """All heads share one query, key and value projection; each head has three embeddings."""

    OPTIONS = (*Attention.OPTIONS, options.shared_init("packed"), options.EMBEDDING_STD)
    one_query = one_key_value = True
    head_embedding_std: float

    def build(self) -> None:
        super().build()
        shape, std = (self.num_heads, self.head_dim), self.head_embedding_std
        self.query_embedding = self.normal(*shape, std=std)  # (n, d), e^Q
        self.key_embedding = self.normal(*shape, std=std)  # (n, d), e^K
        self.value_embedding = self.normal(*shape, std=std)  # (n, d), e^V

    def psi(self, a: Tensor | float, b: Tensor) -> Tensor:
        """Join a number, or the input (..., d), with embeddings (..., d)."""
        raise NotImplementedError

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        q, k, v = affine(self.q_proj, x), affine(self.k_proj, y), affine(self.v_proj, y)
        queries = [self.psi(q, embedding) for embedding in self.query_embedding]
        keys = [self.psi(k, embedding) for embedding in self.key_embedding]
        values = [self.psi(v, embedding) for embedding in self.value_embedding]
        return attend_heads(queries, keys, values, mask, self.out_proj)


class MHEMul(_HeadEmbeddingAttention):
    """MHE-Mul. ``head_embedding_offset`` is the 1 in (1 + b); without it heads start near 0."""

    OPTIONS = (*_HeadEmbeddingAttention.OPTIONS, options.EMBEDDING_OFFSET)
    linear_heads = False
    head_embedding_offset: float

    def psi(self, a: Tensor | float, b: Tensor) -> Tensor:
        return a * (self.head_embedding_offset + b)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): psi(Q) psi(K)^T = (Q * (1 + e_i^Q) * (1 + e_i^K)) K^T."""
        factors = self.psi(self.psi(1, self.query_embedding), self.key_embedding)
        # Every head reads Q, so its numbers shall lie in order.
        return super().queries(x).contiguous() * factors.unsqueeze(1)

    def merge(self, heads: Tensor) -> Tensor:
        """(B, n, T, d) -> (T, B, C): with weights A, A psi(V) = (A V) * (1 + e_i^V)."""
        # W_O takes these factors, since it is smaller than the heads.
        factors = self.psi(1, self.value_embedding).flatten()  # (n d,)
        weight = self.out_proj.weight * factors  # (C, n d)
        return linear(join_heads(heads), weight, self.out_proj.bias)

    def plain_heads(self) -> PlainHeads:
        """W_Q takes both factors of the scores, W_O takes the factor of the value."""
        heads = PlainHeads.of_projections(self)
        factors = self.psi(self.psi(1, self.query_embedding), self.key_embedding)
        bias = heads.query_bias * factors  # (n, d)
        value = self.psi(1, self.value_embedding).unsqueeze(1)  # (n, 1, d)
        output = heads.output * value  # (n, C, d)
        return replace(heads, query_factors=factors, query_bias=bias, output=output)


class MHEAdd(_HeadEmbeddingAttention):
    """MHE-Add."""

    def psi(self, a: Tensor | float, b: Tensor) -> Tensor:
        return a + b

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): psi(Q) psi(K)^T = psi(Q) K^T + psi(Q) e_i^K^T.

        Softmax ignores the second term, which is equal for all keys. But data-parallel training
        demands a gradient for e^K.
        """
        shift = self.query_embedding + 0.0 * self.key_embedding  # (n, d)
        return super().queries(x).contiguous() + shift.unsqueeze(1)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> Attended:
        """With weights A, A psi(V) = A V + (sum of A) e_i^V. Only dropout makes the sum no 1."""
        shift = self.value_embedding.unsqueeze(1)  # (n, 1, d)
        if not options.get("dropout"):
            heads, weights = super().attend(query, key, value, **options)
            return Attended(heads + shift, weights)
        value_and_one = pad(value, (0, 1), value=1.0)  # A averages the 1 to its sum
        heads, weights = super().attend(query, key, value_and_one, **options)
        heads, sums = heads.split(self.head_dim, dim=3)
        return Attended(heads + sums * shift, weights)

    def plain_heads(self) -> PlainHeads:
        """e^Q and e^V become biases of the query and value; e^K changes nothing."""
        heads = PlainHeads.of_projections(self)
        query = heads.query_bias + self.query_embedding  # (n, d)
        value = heads.value_bias + self.value_embedding  # (n, d)
        return replace(heads, query_bias=query, value_bias=value)

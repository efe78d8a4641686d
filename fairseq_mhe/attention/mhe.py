"""MHE attention: Xue & Aletras, Findings of EMNLP 2023, section 3 (arXiv 2310.07911).

Q = X W_Q, K = Y W_K, V = Y W_V with each W in R^{C x d}, shared by all heads; head i has embeddings
e_i^Q, e_i^K, e_i^V in R^d, and is softmax(psi(Q, e_i^Q) psi(K, e_i^K)^T / sqrt(d)) psi(V, e_i^V);
output concat(heads) W_O. MHE-Mul: psi(A, b) = A * (1 + b).  MHE-Add: psi(A, b) = A + b.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C.

psi acts per channel, so one key head and one value head serve all heads exactly: what psi does to
the keys moves to the queries, what it does to the values moves behind the weighted sum. The paper's
equation is ``mhe_mul`` and ``mhe_add`` in tests/attention/equations.py, which tests compare.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fairseq_mhe.attention.base import (
    Attention,
    Option,
    join_heads,
    shared_projection_init,
)
from fairseq_mhe.attention.written_out import WrittenOut

_SPREAD = "spread of the head embeddings' initial values N(0, std) (default: 0.02)"
_ADDED = "what is added to a head embedding before multiplying (default: 1)"
_EMBEDDINGS = "query_embedding", "key_embedding", "value_embedding"


class ScaledLinear(nn.Linear):
    """The layer that it replaces, for generation, with factors of the inputs in its weight."""

    product: Tensor  # (out, in)

    def __init__(self, layer: nn.Linear, factors: Tensor) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        product = layer.weight.detach() * factors.detach()
        self.register_buffer("product", product, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return linear(x, self.product, self.bias)


class _HeadEmbeddingAttention(Attention):
    """Projections to one head, three embeddings a head, one cached key and value head."""

    OPTIONS: tuple[Option, ...] = (
        *Attention.OPTIONS,
        shared_projection_init("packed"),
        Option("head_embedding_std", _SPREAD, float, 0.02),
    )
    head_embedding_std: float
    query_embedding: nn.Parameter  # (n, d), the paper's e^Q
    key_embedding: nn.Parameter  # (n, d), e^K
    value_embedding: nn.Parameter  # (n, d), e^V

    def build(self) -> None:
        std = self.head_embedding_std
        if not std >= 0:  # NaN, too
            raise ValueError(f"head_embedding_std must be 0 or more, but is {std}")
        self.project(1, kept=1)
        for name in _EMBEDDINGS:
            embedding = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
            nn.init.normal_(embedding, std=std)
            self.register_parameter(name, embedding)

    def shared_query(self, x: Tensor) -> Tensor:
        """X W_Q: (T, B, C) -> (B, 1, T, d), contiguous, so that what is made of it is too."""
        length, batch, _ = x.shape
        # A single step's transpose calls itself contiguous but has strides that products inherit.
        rows = self.q_proj(x).transpose(0, 1)  # (B, T, d)
        return rows.reshape(batch, 1, length, self.head_dim)


class MHEMul(_HeadEmbeddingAttention):
    """MHE-Mul: psi(A, b) = A * (1 + b).

    ``head_embedding_offset`` is the 1 in (1 + b): without it heads vanish where b is near 0.
    """

    OPTIONS = (
        *_HeadEmbeddingAttention.OPTIONS,
        Option("head_embedding_offset", _ADDED, float, 1.0),
    )
    linear_heads = False
    projects_together = True
    head_embedding_offset: float
    #: W_Q (n d, C), its bias (n d,) and W_O (C, n d) with factors, for one forward pass.
    _folded: Any = None

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): (X W_Q) * (1 + e_i^Q) * (1 + e_i^K).

        psi(Q) psi(K)^T = (Q * (1 + e^Q)) (K * (1 + e^K))^T = (Q * (1 + e^Q) * (1 + e^K)) K^T.
        """
        if self._computed is not None and x.is_cuda:
            return self.queries_at_once(x)
        return self.shared_query(x) * self.once(self.score_factors).unsqueeze(1)

    def score_factors(self) -> Tensor:
        """(n, d): what the query is multiplied by; in generation with the scale of the scores."""
        offset = self.head_embedding_offset
        factors = (offset + self.query_embedding) * (offset + self.key_embedding)
        return factors if self._computed is None else factors * self.scaling

    def heads_weight(self) -> Tensor:
        """(n d, C): W_Q by each head's factors."""
        return (self.score_factors().unsqueeze(2) * self.q_proj.weight).flatten(0, 1)

    def heads_bias(self) -> Tensor:
        """(n d,): the bias of W_Q by each head's factors."""
        return (self.score_factors() * self.q_proj.bias).flatten()

    def query_weight(self) -> tuple[Tensor, Tensor | None]:
        """W_Q by each head's factors, (n d, C): on a GPU cheaper than a product with queries."""
        if self._folded is None:
            self.fold_together([self])
        weight, bias, _ = self._folded
        return weight, bias

    @classmethod
    def fold_together(cls, sublayers: Sequence["MHEMul"]) -> None:
        """Fold the factors of L sublayers into weights, for one forward pass, by few kernels."""

        def stacked(name: str) -> Tensor:
            return torch.stack([one.get_parameter(name) for one in sublayers])

        offset = sublayers[0].head_embedding_offset
        query, key, value = (offset + stacked(name) for name in _EMBEDDINGS)  # (L, n, d)
        factors = query * key
        weights = stacked("q_proj.weight").unsqueeze(1)  # (L, 1, d, C)
        weights = (weights * factors.unsqueeze(3)).flatten(1, 2)  # (L, n d, C)
        each_input = value.flatten(1).unsqueeze(1)  # (L, 1, n d)
        outputs = stacked("out_proj.weight") * each_input  # (L, C, n d)
        biases: Sequence[Tensor | None] = [None] * len(sublayers)
        if sublayers[0].bias:
            each_head = stacked("q_proj.bias").unsqueeze(1) * factors  # (L, n, d)
            biases = each_head.flatten(1).unbind()
        each = zip(weights.unbind(), biases, outputs.unbind(), strict=True)
        for one, folded in zip(sublayers, each, strict=True):
            one._folded = folded

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): W psi(V) = W (V * (1 + e_i^V)) = (W V) * (1 + e_i^V)."""
        if torch.is_grad_enabled() and self._folded is not None:
            _, _, weight = self._folded  # (C, n d)
            self._folded = None
            return linear(join_heads(heads), weight, self.out_proj.bias)
        if self._computed is not None:  # out_proj is a `ScaledLinear`, with the factors
            return self.out_proj(join_heads(heads))
        factors = self.head_embedding_offset + self.value_embedding  # (n, d)
        if not torch.is_grad_enabled():
            return self.out_proj(join_heads(heads * factors.unsqueeze(1)))
        # In W_O they take no product as large as the heads, nor the backward pass two.
        weight = self.out_proj.weight * factors.flatten()  # (C, n d)
        return linear(join_heads(heads), weight, self.out_proj.bias)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """The scores' factors with their scale, and W_O with the values' factors, are kept."""
        super().make_generation_fast_(**kwargs)
        self.score_scale = 1.0
        factors = self.head_embedding_offset + self.value_embedding  # (n, d)
        self.out_proj = ScaledLinear(self.out_proj, factors.flatten())

    def written_out(self) -> WrittenOut:
        """Both factors of the scores in the query, the value's in W_O."""
        heads = WrittenOut.of_projections(self)
        embeddings = (self.get_parameter(name).detach().double() for name in _EMBEDDINGS)
        query, key, value = (self.head_embedding_offset + each for each in embeddings)
        factors = query * key  # (n, d)
        weight = heads.query * factors.unsqueeze(2)
        output = heads.output * value.unsqueeze(1)
        bias = heads.query_bias * factors
        return replace(heads, query=weight, query_bias=bias, output=output)


class MHEAdd(_HeadEmbeddingAttention):
    """MHE-Add: psi(A, b) = A + b."""

    needs_row_sums = True

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): X W_Q + e_i^Q.

        psi(Q) psi(K)^T = psi(Q) K^T + psi(Q) e^K^T: softmax ignores what is the same for all keys.
        """
        return self.shared_query(x) + self.once(self.query_shift).unsqueeze(1)

    def query_shift(self) -> Tensor:
        """(n, d): e^Q. e^K has no effect and a zero gradient; data-parallel training wants that."""
        return self.query_embedding + 0.0 * self.key_embedding

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): W psi(V) = W V + e_i^V times each row's sum of weights W: 1,
        but for what dropout took away.
        """
        shift = self.value_embedding.unsqueeze(1)  # (n, 1, d)
        shift = shift if row_sums is None else row_sums * shift
        return self.out_proj(join_heads(heads + shift))

    def written_out(self) -> WrittenOut:
        """e^Q and e^V are biases of a head; e^K changes nothing."""
        heads = WrittenOut.of_projections(self)
        query = heads.query_bias + self.query_embedding.detach().double()  # (n, d)
        value = heads.value_bias + self.value_embedding.detach().double()  # (n, d)
        return replace(heads, query_bias=query, value_bias=value)

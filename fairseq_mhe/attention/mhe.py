"""MHE attention: Xue & Aletras, Findings of EMNLP 2023, section 3 (arXiv 2310.07911).

All heads share Q = X W_Q, K = Y W_K and V = Y W_V of width d. Head i has three embeddings in R^d:
softmax(psi(Q, e_i^Q) psi(K, e_i^K)^T / sqrt(d)) psi(V, e_i^V); the output is concat(heads) W_O.
MHE-Mul: psi(A, b) = A * (1 + b).  MHE-Add: psi(A, b) = A + b.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C.

psi acts on each dimension alone, so one key head and one value head serve all heads exactly: the
code applies the key's embedding to the query, and the value's embedding after the weighted sum.
Tests compare it with the paper's form, ``mhe_mul`` and ``mhe_add`` in tests/attention/equations.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fairseq_mhe.attention.base import Attention, Option, join_heads
from fairseq_mhe.attention.written_out import WrittenOut

_INIT_HELP = (
    "scale of the shared projections' initial weights: packed (fairseq's gain), xavier "
    "(gain 1) or head (as large as the weights of one head in mha) (default: packed for mhe_mul "
    "and mhe_add, head for mhe_conv)"
)
_STD_HELP = "spread of the head embeddings' initial values N(0, std) (default: 0.02)"
_OFFSET_HELP = "number added to a head embedding before multiplying (default: 1)"
_EMBEDDINGS = "query_embedding", "key_embedding", "value_embedding"


def init_option(default: str) -> Option:
    """Return the option that scales the initial weights of projections that several heads share."""
    choices = "packed", "xavier", "head"
    return Option("shared_projection_init", _INIT_HELP, str, default, choices)


class ScaledLinear(nn.Linear):
    """A ``layer`` for generation, its weight multiplied beforehand by ``factors`` of its inputs."""

    product: Tensor  # (out, in), weight * factors

    def __init__(self, layer: nn.Linear, factors: Tensor) -> None:
        nn.Module.__init__(self)  # nn.Linear's would allocate another weight
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        product = layer.weight.detach() * factors.detach()
        self.register_buffer("product", product, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return linear(x, self.product, self.bias)


class _HeadEmbeddingAttention(Attention):
    """All heads share one query, key and value projection; each head has three embeddings."""

    OPTIONS: tuple[Option, ...] = (
        *Attention.OPTIONS,
        init_option("packed"),
        Option("head_embedding_std", _STD_HELP, float, 0.02),
    )
    head_embedding_std: float
    query_embedding: nn.Parameter  # (n, d), the paper's e^Q
    key_embedding: nn.Parameter  # (n, d), e^K
    value_embedding: nn.Parameter  # (n, d), e^V

    def build(self) -> None:
        std = self.head_embedding_std
        if not std >= 0:  # NaN, too
            raise ValueError(f"head_embedding_std must be 0 or more, but is {std}")
        self.project(1, kv_heads=1)
        for name in _EMBEDDINGS:
            embedding = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
            if not embedding.is_meta:  # else torch loads its compiler, for a second
                nn.init.normal_(embedding, std=std)
            self.register_parameter(name, embedding)

    def shared_query(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, 1, T, d): X W_Q, contiguous, so that its products are contiguous too."""
        length, batch, _ = x.shape
        # With T = 1 .contiguous() would do nothing, and products would inherit unusual strides.
        rows = self.q_proj(x).transpose(0, 1)  # (B, T, d)
        return rows.reshape(batch, 1, length, self.head_dim)


class MHEMul(_HeadEmbeddingAttention):
    """MHE-Mul: psi(A, b) = A * (1 + b).

    ``head_embedding_offset`` is the 1 in (1 + b). Without it heads start near 0, as b does.
    """

    OPTIONS = (
        *_HeadEmbeddingAttention.OPTIONS,
        Option("head_embedding_offset", _OFFSET_HELP, float, 1.0),
    )
    linear_heads = False
    projects_together = True
    head_embedding_offset: float
    #: From `fold_together`, for one forward pass: scaled W_Q (n d, C), bias (n d,), W_O (C, n d).
    _folded: Any = None

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): (X W_Q) * (1 + e_i^Q) * (1 + e_i^K).

        psi(Q) psi(K)^T = (Q * (1 + e^Q)) (K * (1 + e^K))^T = (Q * (1 + e^Q) * (1 + e^K)) K^T.
        """
        factors = self.compute_once(self.score_factors).unsqueeze(1)  # (n, 1, d)
        if self._computed is not None and x.is_cuda:
            return self.queries_by_one_product(x, factors)
        return self.shared_query(x) * factors

    def score_factors(self) -> Tensor:
        """(n, d): (1 + e^Q) * (1 + e^K), times the scale of the scores if it is folded in."""
        offset = self.head_embedding_offset
        factors = (offset + self.query_embedding) * (offset + self.key_embedding)
        return factors * self.scaling if self.score_scale == 1 else factors

    def query_layer(self) -> tuple[Tensor, Tensor | None]:
        """(n d, C), (n d,): W_Q and its bias times the factors; scaling queries takes longer."""
        if self._folded is None:
            self.fold_together([self])
        weight, bias, _ = self._folded
        return weight, bias

    @classmethod
    def fold_together(cls, sublayers: Sequence["MHEMul"]) -> None:
        """Multiply weights by factors in L sublayers at once, for one forward pass."""

        def stacked(name: str) -> Tensor:
            return torch.stack([sublayer.get_parameter(name) for sublayer in sublayers])

        offset = sublayers[0].head_embedding_offset
        query, key, value = (offset + stacked(name) for name in _EMBEDDINGS)  # (L, n, d)
        factors = query * key
        weights = stacked("q_proj.weight").unsqueeze(1)  # (L, 1, d, C)
        weights = (weights * factors.unsqueeze(3)).flatten(1, 2)  # (L, n d, C)
        output_factors = value.flatten(1).unsqueeze(1)  # (L, 1, n d)
        outputs = stacked("out_proj.weight") * output_factors  # (L, C, n d)
        biases: Sequence[Tensor | None] = [None] * len(sublayers)
        if sublayers[0].bias:
            head_biases = stacked("q_proj.bias").unsqueeze(1) * factors  # (L, n, d)
            biases = head_biases.flatten(1).unbind()
        folded = zip(weights.unbind(), biases, outputs.unbind(), strict=True)
        for sublayer, layers in zip(sublayers, folded, strict=True):
            sublayer._folded = layers

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): with weights W, W (V * (1 + e_i^V)) = (W V) * (1 + e_i^V)."""
        if torch.is_grad_enabled() and self._folded is not None:
            _, _, weight = self._folded  # (C, n d)
            self._folded = None
            return linear(join_heads(heads), weight, self.out_proj.bias)
        if hasattr(self.out_proj, "product"):  # a `ScaledLinear`, which has the factors
            return self.out_proj(join_heads(heads))
        factors = self.head_embedding_offset + self.value_embedding  # (n, d)
        if not torch.is_grad_enabled():
            return self.out_proj(join_heads(heads * factors.unsqueeze(1)))
        # Scaling the heads would take longer, here and in the backward pass: they are larger.
        weight = self.out_proj.weight * factors.flatten()  # (C, n d)
        return linear(join_heads(heads), weight, self.out_proj.bias)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Fold the scale into the query's factors, and the value's factors into W_O."""
        super().make_generation_fast_(**kwargs)
        self.score_scale = 1.0
        factors = self.head_embedding_offset + self.value_embedding  # (n, d)
        self.out_proj = ScaledLinear(self.out_proj, factors.flatten())

    def written_out(self) -> WrittenOut:
        """The query takes both factors of the scores, W_O takes the factor of the value."""
        heads = WrittenOut.of_projections(self)
        embeddings = (self.get_parameter(name).detach().double() for name in _EMBEDDINGS)
        query, key, value = (self.head_embedding_offset + e for e in embeddings)
        factors = query * key  # (n, d)
        weight = heads.query * factors.unsqueeze(2)  # (n, d, C)
        output = heads.output * value.unsqueeze(1)  # (n, C, d)
        bias = heads.query_bias * factors
        return replace(heads, query=weight, query_bias=bias, output=output)


class MHEAdd(_HeadEmbeddingAttention):
    """MHE-Add: psi(A, b) = A + b."""

    needs_row_sums = True

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): X W_Q + e_i^Q.

        psi(Q) psi(K)^T = psi(Q) K^T + psi(Q) e^K^T: softmax ignores the last, equal for all keys.
        """
        return self.shared_query(x) + self.compute_once(self.query_shift).unsqueeze(1)

    def query_shift(self) -> Tensor:
        """(n, d): e^Q. e^K has no effect, but data-parallel training demands a gradient for it."""
        return self.query_embedding + 0.0 * self.key_embedding

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): with weights W, W (V + e_i^V) = W V + (row sum of W) e_i^V."""
        shift = self.value_embedding.unsqueeze(1)  # (n, 1, d)
        shift = shift if row_sums is None else row_sums * shift
        return self.out_proj(join_heads(heads + shift))

    def written_out(self) -> WrittenOut:
        """e^Q and e^V become biases of the query and value; e^K changes nothing."""
        heads = WrittenOut.of_projections(self)
        query = heads.query_bias + self.query_embedding.detach().double()  # (n, d)
        value = heads.value_bias + self.value_embedding.detach().double()  # (n, d)
        return replace(heads, query_bias=query, value_bias=value)

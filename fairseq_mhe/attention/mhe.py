"""MHE attention: Xue & Aletras, Findings of EMNLP 2023, section 3 (arXiv 2310.07911).

Q = X W_Q, K = Y W_K, V = Y W_V with each W in R^{C x d}, shared by all heads; head i has embeddings
e_i^Q, e_i^K, e_i^V in R^d, and is softmax(psi(Q, e_i^Q) psi(K, e_i^K)^T / sqrt(d)) psi(V, e_i^V);
output concat(heads) W_O. MHE-Mul: psi(A, b) = A * (1 + b).  MHE-Add: psi(A, b) = A + b.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C.

psi acts per channel and the projections are shared, so one key head and one value head serve all
heads exactly: what psi does to the keys moves to the queries, what it does to the values moves
behind the weighted sum.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from fairseq_mhe.attention.base import join_heads
from fairseq_mhe.attention.cp import decompose
from fairseq_mhe.attention.fitting import (
    Fitted,
    Parameters,
    Problem,
    Trained,
    means,
    root,
    shared_rows,
)
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.attention.shared import SharedProjectionAttention
from fairseq_mhe.attention.sublayer import Option, Sublayer

#: fairseq's attribute of parameters that an optimizer treats apart, and its value at the head
#: embeddings.
PARAM_GROUP = "head_embeddings"

_STD = Option(
    "head_embedding_std", float, 0.02, "spread of the head embeddings' initial values N(0, std)"
)

_OFFSET = Option(
    "head_embedding_offset", float, 1.0, "what is added to a head embedding before multiplying"
)


def _head_embedding(num_heads: int, head_dim: int, std: float) -> nn.Parameter:
    """(n, d) of N(0, std), which an optimizer may treat apart."""
    embedding = nn.Parameter(torch.empty(num_heads, head_dim))
    nn.init.normal_(embedding, std=std)
    embedding.param_group = PARAM_GROUP  # type: ignore[attr-defined]
    return embedding


class _HeadEmbeddingAttention(SharedProjectionAttention):
    """What both share: projections to one head, three embeddings a head, one cached head each."""

    OPTIONS: tuple[Option, ...] = (*SharedProjectionAttention.OPTIONS, _STD)
    head_embedding_std: float
    query_embedding: nn.Parameter  # (n, d), the paper's e^Q
    key_embedding: nn.Parameter  # (n, d), e^K
    value_embedding: nn.Parameter  # (n, d), e^V

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        std = self.head_embedding_std
        if not 0 <= std < math.inf:
            raise ValueError(f"head_embedding_std must be 0 or more, but is {std}")
        self.project(1, kept=1)
        for name in ("query_embedding", "key_embedding", "value_embedding"):
            self.register_parameter(name, _head_embedding(num_heads, self.head_dim, std))

    def shared_query(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, 1, T, d), contiguous, so that what is made of it is too."""
        length, batch, _ = x.shape
        # reshape, because a single step's transpose calls itself contiguous but keeps strides that
        # products inherit.
        return self.q_proj(x).transpose(0, 1).reshape(batch, 1, length, self.head_dim)

    def pooled(self, heads: Heads) -> Parameters:
        """Means of the heads; each head's embeddings then come as close to its own as they can."""
        parameters = means(self, heads)
        heads = heads.of_width(self.head_dim)
        for name in ("query", "key", "value"):
            embedding = self.best_embedding(getattr(heads, name), getattr(heads, f"{name}_bias"))
            parameters[f"{name}_embedding"] = embedding
        return parameters

    def best_embedding(self, weight: Tensor, bias: Tensor) -> Tensor:
        """(n, d): what brings the mean of weights (n, d, C) and biases (n, d) closest to each."""
        raise NotImplementedError


class MHEMul(_HeadEmbeddingAttention):
    """MHE-Mul. Both scores' factors sit on the query, (1 + e^V) on the head's output.

    ``head_embedding_offset`` is the 1 in (1 + b), which keeps heads from vanishing where b is near
    0.
    """

    OPTIONS = (*_HeadEmbeddingAttention.OPTIONS, _OFFSET)
    head_embedding_offset: float
    linear_heads = False
    fits_by_tensorly = True

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        if not math.isfinite(self.head_embedding_offset):
            raise ValueError(
                f"head_embedding_offset must be a number, not {self.head_embedding_offset}"
            )

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): (X W_Q) * (1 + e_i^Q) * (1 + e_i^K)."""
        offset = self.head_embedding_offset
        factor = (offset + self.query_embedding) * (offset + self.key_embedding)  # (n, d)
        return self.shared_query(x) * factor.unsqueeze(1)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, d) -> (T, B, C): each head times (1 + e_i^V), which weights pass through."""
        factors = self.head_embedding_offset + self.value_embedding  # (n, d)
        if torch.is_grad_enabled():
            # In W_O they take no product as large as the heads, nor the backward pass two.
            weight = self.out_proj.weight * factors.flatten()  # (C, n d)
            return linear(join_heads(heads), weight, self.out_proj.bias)
        return self.out_proj(join_heads(heads * factors.unsqueeze(1)))

    def written_out(self) -> Heads:
        """(Q fQ) (K fK)^T = (Q fQ fK) K^T with f = 1 + e: both in the query, the value's in W_O."""
        heads = Heads.of_projections(self)
        embeddings = (self.query_embedding, self.key_embedding, self.value_embedding)
        of_query, of_key, of_value = (
            self.head_embedding_offset + e.detach().double() for e in embeddings
        )  # (n, d)
        of_scores = of_query * of_key
        return replace(
            heads,
            query=heads.query * of_scores.unsqueeze(2),
            query_bias=heads.query_bias * of_scores,
            output=heads.output * of_value.unsqueeze(1),
        )

    def fitted(self, trained: Trained) -> Fitted:
        """Scores with one factor a head and channel are a CP decomposition; W_O has the values'."""
        parameters, factors = factors_of_scores(self, trained)
        one = torch.full_like(factors, 1 - self.head_embedding_offset)
        # All in e^Q: where a factor is 0 it can still learn, which it could not if e^K made half
        # of it.
        parameters["query_embedding"] = factors - self.head_embedding_offset
        parameters["key_embedding"] = one
        parameters["value_embedding"] = one.clone()
        return Fitted(parameters)

    def best_embedding(self, weight: Tensor, bias: Tensor) -> Tensor:
        """The factor of each channel that brings the mean closest to the head's own."""
        return factors_of_mean(weight) - self.head_embedding_offset


class MHEAdd(_HeadEmbeddingAttention):
    """MHE-Add. e^Q is added to the query; e^K adds the same to all of a query's scores, which the
    softmax ignores; e^V is added to the head's output, times the weights' sum where dropout makes
    that differ from 1.
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

    def written_out(self) -> Heads:
        """e^Q and e^V are biases of a head; e^K changes nothing."""
        heads = Heads.of_projections(self)
        return replace(
            heads,
            query_bias=heads.query_bias + self.query_embedding.detach().double(),
            value_bias=heads.value_bias + self.value_embedding.detach().double(),
        )

    def fitted(self, trained: Trained) -> Fitted:
        """Heads differ in what they score a key by whatever the query: one score of x, on average,
        and a shift a head.
        """
        p = Problem(self, trained)
        heads = p.heads
        n, width = heads.count, heads.query.size(2)  # width: C
        mean = p.inputs.query.mean  # (C,)
        half, inverse = root(p.inputs.query.covariance)
        varying = p.scores[:, :width].mean(dim=0)  # (C, M)
        at_mean = heads.query @ mean + heads.query_bias  # (n, k)
        fixed = (at_mean.unsqueeze(1) @ heads.key).squeeze(1)  # (n, M)
        wanted = torch.cat((n**0.5 * half @ varying, fixed)).unsqueeze(0)  # (1, C + n, M)
        rows, factors = shared_rows(wanted, p.of_memory, self.head_dim)
        query = (inverse @ factors[0, :width] / n**0.5).T  # (d, C)
        shift = factors[0, width:] - query @ mean  # (n, d)
        value, output = shared_rows(p.outputs, p.of_memory, self.head_dim)
        parameters = p.parameters(pad(query, (0, 1)), rows, value.unsqueeze(0), output)
        # The shifts that write what is constant, the shortest of them; a bias has the rest.
        constant = p.lost_constant(value.unsqueeze(0), output)  # (C,)
        joined = parameters["out_proj.weight"]  # (C, n d)
        shifts = torch.linalg.pinv(joined) @ constant  # (n d,)
        if self.bias:
            parameters["out_proj.bias"] = constant - joined @ shifts
        parameters["query_embedding"] = shift
        parameters["key_embedding"] = torch.zeros_like(shift)
        parameters["value_embedding"] = shifts.unflatten(0, (n, -1))
        return Fitted(parameters)

    def best_embedding(self, weight: Tensor, bias: Tensor) -> Tensor:
        """What each head's bias differs from the mean by."""
        return bias - (bias.mean(dim=0) if self.bias else 0)


def factors_of_scores(new: Sublayer, trained: Trained) -> tuple[Parameters, Tensor]:
    """Shared projections, and the factors (n, d) of a shared query that come closest to heads."""
    p, width = Problem(new, trained), new.head_dim
    weighted = p.of_query[0] @ p.scores @ p.of_memory[0]  # (n, X, M)
    found = decompose(weighted, width, p.heads.key.size(1), trained.iterations, trained.advance)
    # Factors of size 1 on average, as those of a new model are.
    size = found.mixing.square().mean(dim=0).sqrt()  # (d,)
    factors = torch.where(size > 0, found.mixing / size, 1.0)  # (n, d)
    query, key = (rows * size.sqrt().unsqueeze(1) for rows in (found.query, found.key))
    value, output = p.shared_values(p.outputs)
    return p.parameters(query @ p.of_query[1], key @ p.of_memory[1], value, output), factors


def factors_of_mean(weight: Tensor) -> Tensor:
    """(n, d): what brings the mean of weights (n, d, C) closest to each, channel by channel."""
    mean = weight.mean(dim=0)  # (d, C)
    size = mean.square().sum(dim=1)  # (d,)
    return torch.where(size > 0, (weight * mean).sum(dim=2) / size, 1.0)

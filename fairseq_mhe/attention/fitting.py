"""What kinds use to start from trained heads: moments of a sublayer's inputs, least squares, means.

Head by head, the two maps that a head is are approximated: its scores x^T A_i y (of which softmax
ignores what is the same for every y) and its output B_i y. Where real inputs were measured, errors
count as they do on those. Truncated singular value decompositions are exact minimisers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from fairseq_mhe.attention.heads import Heads

if TYPE_CHECKING:
    from fairseq_mhe.attention.sublayer import Sublayer

#: Parameters of a sublayer by their names in its module, float64.
Parameters = dict[str, Tensor]
#: Eigenvalues below this share of the largest count as this share: the data hardly show them.
FLOOR = 1e-6


@dataclass(frozen=True)
class Moments:
    """``mean`` (C,) and ``covariance`` (C, C) of vectors, float64."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def unknown(cls, width: int) -> Moments:
        """Every direction alike: what to assume without data."""
        return cls(torch.zeros(width, dtype=torch.float64), torch.eye(width, dtype=torch.float64))

    @property
    def second(self) -> Tensor:
        """(C, C): the mean of x x^T."""
        return self.covariance + self.mean.outer(self.mean)

    def with_one(self) -> Tensor:
        """(C + 1, C + 1): the mean of [x, 1] [x, 1]^T, for maps with a bias."""
        vector = torch.cat((self.mean, torch.ones(1, dtype=torch.float64)))  # (C + 1,)
        return pad(self.covariance, (0, 1, 0, 1)) + vector.outer(vector)


@dataclass(frozen=True)
class Inputs:
    """What one sublayer reads: ``query`` and ``memory``."""

    query: Moments
    memory: Moments

    @classmethod
    def unknown(cls, attention: Sublayer) -> Inputs:
        """Inputs of which nothing is known."""
        return cls(Moments.unknown(attention.embed_dim), Moments.unknown(attention.kdim))


@dataclass(frozen=True)
class Trained:
    """Heads to start from, and what they read: errors count as they do there.

    ``advance`` is called after each round of least squares, of which there are at most
    ``iterations``.
    """

    heads: Heads
    inputs: Inputs
    advance: Callable[[], None] = lambda: None
    iterations: int = 100


@dataclass(frozen=True)
class Fitted:
    """A sublayer's new parameters; ``error``: of its scores, relative, where one was measured."""

    parameters: Parameters
    error: float | None = None
    iterations: int = 0


def root(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric square root of a covariance (C, C), and its inverse; see ``FLOOR``."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp(min=float(values.max()) * FLOOR).sqrt()
    return (vectors * values) @ vectors.T, (vectors / values) @ vectors.T


class Problem:
    """Heads to approximate by a new sublayer, their forms and weights prepared."""

    def __init__(self, new: Sublayer, trained: Trained) -> None:
        self.heads, self.inputs = trained.heads.scaled(new.head_dim**-0.5), trained.inputs
        self.width, self.bias = new.head_dim, new.bias
        query, moments = self.heads.query, self.inputs.query.second  # (n, k, C), (C, C)
        if self.bias:  # the query's input has one more entry that is always 1: X = C + 1, else C
            query = torch.cat((query, self.heads.query_bias.unsqueeze(2)), dim=2)  # (n, k, X)
            moments = self.inputs.query.with_one()  # (X, X)
        self.scores = query.transpose(1, 2) @ self.heads.key  # (n, X, M), without the scale
        self.outputs = self.heads.outputs()  # (n, C, M)
        self.of_query = root(moments)  # (X, X) twice
        self.of_memory = root(self.inputs.memory.covariance)  # (M, M): softmax ignores the mean
        # Where a bias can make up for the mean, only what varies counts in the output.
        self.of_value = self.of_memory if self.bias else root(self.inputs.memory.second)

    def parameters(self, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> Parameters:
        """Of queries (rows, X), keys (rows, M), values (n or g, d, M) and outputs (n, C, d).

        Softmax would ignore a key's bias; what is constant in the values goes in the output's.
        """
        width, values = self.heads.query.size(2), value.flatten(0, 1)  # (n d or g d, M)
        found = {
            "q_proj.weight": query[:, :width],
            "q_proj.bias": query[:, width:].flatten(),
            "k_proj.weight": key,
            "k_proj.bias": key.new_zeros(len(key)),
            "v_proj.weight": values,
            "v_proj.bias": values.new_zeros(len(values)),
            "out_proj.weight": output.transpose(0, 1).flatten(1),
            "out_proj.bias": self.lost_constant(value, output),
        }
        return _with_biases_if(self.bias, found)

    def shared_values(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The best values (1, d, M) for ``outputs`` (n, C, M), and they through it (n, C, d)."""
        rows, factors = shared_rows(outputs, self.of_value, self.width)
        return rows.unsqueeze(0), factors

    def lost_constant(self, value: Tensor, output: Tensor) -> Tensor:
        """(C,): the heads' constants, and what the approximation misses at the memory's mean."""
        each = value.repeat_interleave(self.heads.count // len(value), dim=0)  # (n, d, M)
        missed = (self.outputs - output @ each).sum(dim=0) @ self.inputs.memory.mean
        return missed + self.heads.constant()


def shared_rows(forms: Tensor, weight: tuple[Tensor, Tensor], width: int) -> tuple[Tensor, Tensor]:
    """The best ``width`` rows that all of ``forms`` (n, A, M) are seen through.

    Returns:
        rows (width, M) and for each form its own factor (n, A, width), with form ~ factor rows on
        inputs of ``weight``.
    """
    half, inverse = weight
    weighted = forms @ half  # (n, A, M)
    flat = weighted.flatten(0, 1)
    values, vectors = torch.linalg.eigh(flat.T @ flat)  # ascending
    values = values.clamp(min=0).flip(0)[:width]
    basis = vectors[:, -width:].flip(1)  # (M, d)
    missing = width - basis.size(1)
    basis, values = pad(basis, (0, missing)), pad(values, (0, missing))
    size = values**0.25  # query and key share the size of what they make
    rows = size.unsqueeze(1) * basis.T @ inverse
    factors = weighted @ basis / size.where(size > 0, 1.0)
    return rows, factors


def means(new: Sublayer, heads: Heads) -> Parameters:
    """Projections with as many heads as ``new`` has, means over groups of heads; the same output.

    Ainslie et al. 2023 (section 2.1) found that best for GQA.

    Raises:
        ValueError: the heads are wider than those of ``new``.
    """
    heads = heads.of_width(new.head_dim)
    parameters = {"out_proj.weight": heads.output.transpose(0, 1).flatten(1)}
    groups = {"query": new.query_heads, "key": new.key_heads, "value": new.value_heads}
    for name, count in groups.items():
        for suffix, field in (("weight", name), ("bias", f"{name}_bias")):
            rows = getattr(heads, field).unflatten(0, (count, -1))
            parameters[f"{name[0]}_proj.{suffix}"] = rows.mean(dim=1).flatten(0, 1)
    parameters["out_proj.bias"] = heads.output_bias
    return _with_biases_if(new.bias, parameters)


def _with_biases_if(bias: bool, parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if bias or "bias" not in name}

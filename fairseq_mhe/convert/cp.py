"""Approximate the scores of all heads by shared components: a CP decomposition (PARAFAC)."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from fairseq_mhe.common.system import require


@dataclass(frozen=True)
class Components:
    """Head i's bilinear form (A, B) is about sum_r ``mixing[i, r] query[r] key[r]^T``, r < D.

    ``mixing`` (n, D), ``query`` (D, A), ``key`` (D, B), all float64; ``error``: relative, in the
    Frobenius norm; ``iterations``: rounds of least squares that were made.
    """

    mixing: Tensor
    query: Tensor
    key: Tensor
    error: float
    iterations: int

    @classmethod
    def of(
        cls, forms: Tensor, mixing: Tensor, query: Tensor, key: Tensor, rounds: int = 0
    ) -> Self:
        """Return components, with their error as an approximation of ``forms`` (n, A, B)."""
        residual = torch.einsum("ir,ra,rb->iab", mixing, query, key) - forms
        smallest = torch.finfo(forms.dtype).tiny
        error = residual.norm() / forms.norm().clamp(min=smallest)
        return cls(mixing, query, key, float(error), rounds)

    def balanced(self) -> Self:
        """Rescale each component to equally long query and key, and a largest mixing entry of 1."""
        index = self.mixing.abs().argmax(dim=0, keepdim=True)
        largest = self.mixing.gather(0, index).squeeze(0)  # (D,), signed
        mixing = torch.where(largest != 0, self.mixing / largest, 0.0)
        lengths = self.query.norm(dim=1) * self.key.norm(dim=1)  # (D,)
        length = (largest.abs() * lengths).sqrt().unsqueeze(1)  # (D, 1)
        query = normalize(self.query) * length * largest.sign().unsqueeze(1)
        key = normalize(self.key) * length
        return replace(self, mixing=mixing, query=query, key=key)


def decompose(forms: Tensor, dimensions: int, rank: int, iterations: int) -> Components:
    """Approximate bilinear ``forms`` (n, A, B) of at most ``rank`` by ``dimensions`` components.

    With ``dimensions`` >= n * ``rank`` the singular components of all heads together are exact.
    With fewer, alternating least squares with line search starts from the largest of them: errors
    were nearly always lower than from tensorly's own starts. UserError if tensorly is missing.
    """
    rank = min(rank, *forms.shape[1:])
    start = _singular_components(forms, dimensions, rank)
    if dimensions >= forms.size(0) * rank:
        return start.balanced()
    end = _alternate(forms, start, iterations)
    return min(start, end, key=lambda components: components.error).balanced()


def _singular_components(forms: Tensor, dimensions: int, rank: int) -> Components:
    """Return the heads' largest singular components, each used by one head; zeros if too few."""
    u, s, v = torch.linalg.svd(forms, full_matrices=False)
    size = s[:, :rank].flatten()  # (n rank,)
    largest = size.argsort(descending=True)[:dimensions].sort().values
    missing = (0, 0, 0, dimensions - len(largest))  # `pad` adds this many rows
    size = size[largest].sqrt().unsqueeze(1)
    heads = torch.eye(len(s), dtype=s.dtype)  # (n, n)
    mixing = heads.repeat_interleave(rank, dim=0)  # (n rank, n)
    query = u[:, :, :rank].transpose(1, 2).flatten(0, 1)  # (n rank, A)
    key = v[:, :rank].flatten(0, 1)  # (n rank, B)
    query = pad(query[largest] * size, missing)  # (D, A)
    key = pad(key[largest] * size, missing)  # (D, B)
    return Components.of(forms, pad(mixing[largest], missing).T, query, key)


def _alternate(forms: Tensor, start: Components, iterations: int) -> Components:
    """Run tensorly's alternating least squares, at most ``iterations`` rounds from ``start``."""
    require("tensorly")
    from tensorly.cp_tensor import CPTensor
    from tensorly.decomposition import parafac

    dimensions = len(start.query)
    factors = start.mixing, start.query.T, start.key.T  # (n, D), (A, D), (B, D)
    initial = [factor.numpy().copy() for factor in factors]  # tensorly 0.9 changes them
    calls = []
    _, fitted = parafac(
        forms.numpy(),
        dimensions,
        n_iter_max=iterations,
        init=CPTensor((np.ones(dimensions), initial)),
        tol=1e-6,  # stop after a round that changes the relative error by less than this
        linesearch=True,
        # Without a ridge, two components that become alike make a regression singular. The ridge
        # is relative to its matrix, products of four factors of about norm ** (1 / 3) each.
        l2_reg=1e-10 * float(forms.norm()) ** (4 / 3),
        callback=lambda *call: calls.append(call),
    )
    mixing, query, key = (torch.tensor(factor) for factor in fitted)
    rounds = max(0, len(calls) - 1)  # the first call comes before the first round
    return Components.of(forms, mixing, query.T, key.T, rounds)  # (n, D), (D, A), (D, B)

"""The CP (PARAFAC) decomposition by which heads get shared components: tensorly's, well begun."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from fairseq_mhe.common.system import require

#: Alternating least squares stops where an iteration lowers the relative error by less than this.
STOP = 1e-6
#: Ridge of its regressions, by the size that products of two factors have.
RIDGE = 1e-10


@dataclass(frozen=True)
class Components:
    """sum over r of ``mixing[i, r] query[r] key[r]^T``: (n, D), (D, A), (D, B), float64.

    ``error``: relative in the Frobenius norm; ``iterations``: rounds of least squares.
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
        """Components that approximate ``forms`` (n, A, B)."""
        apart = torch.einsum("ir,ra,rb->iab", mixing, query, key) - forms
        smallest = torch.finfo(forms.dtype).tiny
        error = apart.norm() / forms.norm().clamp(min=smallest)
        return cls(mixing, query, key, float(error), rounds)

    def balanced(self) -> Self:
        """The same, query and key of each component equally long, its largest mixing entry 1."""
        place = self.mixing.abs().argmax(dim=0, keepdim=True)
        largest = self.mixing.gather(0, place).squeeze(0)  # (D,), signed
        mixing = torch.where(largest != 0, self.mixing / largest, 0.0)
        lengths = self.query.norm(dim=1) * self.key.norm(dim=1)  # (D,)
        side = (largest.abs() * lengths).sqrt().unsqueeze(1)  # (D, 1)
        query = normalize(self.query) * side * largest.sign().unsqueeze(1)
        key = normalize(self.key) * side
        return replace(self, mixing=mixing, query=query, key=key)


def decompose(forms: Tensor, dimensions: int, rank: int, iterations: int) -> Components:
    """Approximate ``forms`` (n, A, B) of at most ``rank`` by ``dimensions`` shared components.

    With ``dimensions`` = n * ``rank`` the heads' own components, side by side, are exact. With
    fewer, alternating least squares with line search goes on from the largest of them: on a trained
    tiny model at D = n d / 4 and n d / 2 that ended lower than tensorly's own starts, "svd" and
    "random", in nearly every case. UserError where tensorly is not installed.
    """
    start = _own_components(forms, dimensions, rank)
    if dimensions >= forms.size(0) * rank:
        return start.balanced()
    end = _alternate(forms, start, iterations)
    return min(start, end, key=lambda components: components.error).balanced()


def _own_components(forms: Tensor, dimensions: int, rank: int) -> Components:
    """The heads' largest singular components, each for its own head alone; zeros if too few."""
    u, s, v = torch.linalg.svd(forms, full_matrices=False)
    size = s[:, :rank].flatten()  # (n rank,)
    largest = size.argsort(descending=True)[:dimensions].sort().values
    missing = (0, 0, 0, dimensions - len(largest))  # more rows
    size = size[largest].sqrt().unsqueeze(1)
    heads = torch.eye(len(s), dtype=s.dtype)  # (n, n)
    mixing = heads.repeat_interleave(rank, dim=0)  # (n rank, n)
    query = u[:, :, :rank].transpose(1, 2).flatten(0, 1)  # (n rank, A)
    key = v[:, :rank].flatten(0, 1)  # (n rank, B)
    query = pad(query[largest] * size, missing)  # (D, A)
    key = pad(key[largest] * size, missing)  # (D, B)
    return Components.of(forms, pad(mixing[largest], missing).T, query, key)


def _alternate(forms: Tensor, start: Components, iterations: int) -> Components:
    """tensorly's alternating least squares from ``start``."""
    require("tensorly")
    from tensorly.cp_tensor import CPTensor
    from tensorly.decomposition import parafac

    dimensions, calls = len(start.query), []
    # Copies, since tensorly works in place; it lays factors out by rows.
    parts = start.mixing, start.query.T, start.key.T
    begin = [part.numpy().copy() for part in parts]
    _, factors = parafac(
        forms.numpy(),
        dimensions,
        n_iter_max=iterations,
        init=CPTensor((np.ones(dimensions), begin)),
        tol=STOP,
        linesearch=True,
        # A little ridge regression, so that components that have become alike do not stop it.
        l2_reg=RIDGE * float(forms.norm()) ** (4 / 3),
        callback=lambda *call: calls.append(call),
    )
    mixing, query, key = (torch.tensor(factor) for factor in factors)
    query = query.T.contiguous()  # (D, A)
    key = key.T.contiguous()  # (D, B)
    rounds = max(0, len(calls) - 1)  # the first call comes before the first round
    return Components.of(forms, mixing, query, key, rounds)

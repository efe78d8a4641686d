"""The CP decomposition recovers components that exist, and reports its error."""

import sys

import pytest
import torch
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.cp import Components, decompose

N, A, B, RANK = 4, 10, 9, 3


def product(components: Components) -> Tensor:
    parts = components.mixing, components.query, components.key
    return torch.einsum("ir,ra,rb->iab", *parts)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def forms() -> Tensor:
    """(N, A, B), each of rank ``RANK``."""
    return random(N, A, RANK) @ random(N, RANK, B, seed=2)


@pytest.mark.parametrize(("dimensions", "rank"), [(N * RANK, RANK), (N * B, B + 2)])
def test_as_many_components_as_all_heads_have_are_exact(
    dimensions: int, rank: int, forms: Tensor
) -> None:
    """Red if heads wider than their input, whose rank is that of the input, are not exact."""
    components = decompose(forms, dimensions, rank, iterations=0)
    torch.testing.assert_close(product(components), forms)


def test_shared_components_are_recovered() -> None:
    """Red if forms of 5 shared components keep an error: singular components alone leave one."""
    forms = torch.einsum("ir,ra,rb->iab", random(N, 5), random(5, A, seed=2), random(5, B, seed=3))
    components = decompose(forms, 5, 5, iterations=2000)
    error = float((product(components) - forms).norm() / forms.norm())
    assert components.error == pytest.approx(error, abs=1e-10)
    assert error < 0.02
    assert 0 < components.iterations <= 2000
    torch.testing.assert_close(components.query.norm(dim=1), components.key.norm(dim=1))


def test_zero_forms_give_zero_components() -> None:
    zeros = torch.zeros(N, A, B, dtype=torch.float64)
    assert product(decompose(zeros, N * RANK, RANK, iterations=5)).abs().max() == 0


def test_a_missing_tensorly_is_named(forms: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorly", None)
    with pytest.raises(UserError, match="tensorly"):
        decompose(forms, 2, RANK, iterations=5)

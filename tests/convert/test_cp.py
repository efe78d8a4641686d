"""The CP decomposition finds what there is to find, and says how far it came."""

import sys

import pytest
import torch
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.cp import Components, decompose

N, A, B, RANK = 4, 10, 9, 3


def product(found: Components) -> Tensor:
    return torch.einsum("ir,ra,rb->iab", found.mixing, found.query, found.key)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def forms() -> Tensor:
    """(N, A, B), each of rank ``RANK``."""
    return random(N, A, RANK) @ random(N, RANK, B, seed=2)


def test_all_of_the_heads_own_components_are_exact(forms: Tensor) -> None:
    found = decompose(forms, N * RANK, RANK, iterations=0)
    torch.testing.assert_close(product(found), forms)
    assert found.error < 1e-12


def test_fewer_shared_components_are_found_where_there_are_no_more() -> None:
    """What 5 components make is found again, which no head's own could show."""
    forms = torch.einsum("ir,ra,rb->iab", random(N, 5), random(5, A, seed=2), random(5, B, seed=3))
    found = decompose(forms, 5, 5, iterations=2000)
    assert found.error < 0.02
    assert 0 < found.iterations <= 2000


def test_the_error_is_the_relative_frobenius_norm_and_falls_with_more_components(
    forms: Tensor,
) -> None:
    found = [decompose(forms, dimensions, RANK, iterations=60) for dimensions in (2, 4, 8)]
    for each in found:
        assert each.error == pytest.approx(
            float((product(each) - forms).norm() / forms.norm()), abs=1e-10
        )
    assert found[0].error > found[1].error > found[2].error


def test_components_are_balanced(forms: Tensor) -> None:
    found = decompose(forms, 6, RANK, iterations=20)
    torch.testing.assert_close(found.query.norm(dim=1), found.key.norm(dim=1))
    torch.testing.assert_close(found.mixing.amax(dim=0), torch.ones(6, dtype=torch.float64))


def test_heads_of_nothing_need_no_components() -> None:
    found = decompose(torch.zeros(N, A, B, dtype=torch.float64), N * RANK, RANK, iterations=5)
    assert product(found).abs().max() == 0


def test_without_tensorly_there_is_one_clear_line(
    forms: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorly", None)
    with pytest.raises(UserError, match=r"pip install tensorly"):
        decompose(forms, 2, RANK, iterations=5)

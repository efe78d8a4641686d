"""The CP decomposition recovers components that exist, and reports its error."""

import sys

import pytest
import torch
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.cp import Components, decompose

N, A, B = 4, 10, 9


def product(components: Components) -> Tensor:
    parts = components.mixing, components.query, components.key
    return torch.einsum("ir,ra,rb->iab", *parts)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_shared_components_are_recovered() -> None:
    """Red if forms of 5 shared components keep an error: singular components alone leave one."""
    forms = torch.einsum("ir,ra,rb->iab", random(N, 5), random(5, A, seed=2), random(5, B, seed=3))
    components = decompose(forms, 5, 5, iterations=2000)
    error = float((product(components) - forms).norm() / forms.norm())
    assert components.error == pytest.approx(error, abs=1e-10)
    assert error < 0.02
    assert 0 < components.iterations <= 2000
    torch.testing.assert_close(components.query.norm(dim=1), components.key.norm(dim=1))


def test_a_missing_tensorly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorly", None)
    with pytest.raises(UserError, match="tensorly"):
        decompose(random(N, A, B), 2, 3, iterations=5)

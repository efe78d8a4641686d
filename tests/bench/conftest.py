"""Settings and cells so small that a model is built and measured in a fraction of a second."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import Settings

VOCABULARY = 120


def make_settings(
    row: str = "tiny", device: str = "cpu", vocabulary: int = VOCABULARY, **own: Any
) -> Settings:
    """One CPU thread; ``own``: what one benchmark has and others have not."""
    return Settings(row=row, device=device, threads=1, vocabulary=vocabulary, seed=1, **own)


@pytest.fixture(params=["stock", "mhe_mul"])
def variant(request: pytest.FixtureRequest) -> str:
    """Stock fairseq and one of ours."""
    return request.param


@pytest.fixture
def unconverted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configurations as fairseq's parser leaves them: converting each takes half a second.

    What these and converted ones have in common is the model, the task and the seed.
    """

    def as_parsed(args: Namespace) -> Namespace:
        return Namespace(model=args, task=args, common=args)

    monkeypatch.setattr(models, "convert_namespace_to_omegaconf", as_parsed)
    # None may be remembered.
    monkeypatch.setattr(models, "configuration_of", models.configuration_of.__wrapped__)

"""Settings and cells so small that a model is built and measured in a fraction of a second."""

from __future__ import annotations

from typing import Any

import pytest

from fairseq_mhe.bench.settings import Settings

VOCABULARY = 120


def make_settings(bench: str, **other: Any) -> Settings:
    """The tiny row on one CPU thread."""
    common = {
        "row": "tiny",
        "device": "cpu",
        "threads": 1,
        "vocabulary": VOCABULARY,
        "seed": 1,
        "seconds": 1e-4,
    }
    return Settings(bench, **{**common, **other})


@pytest.fixture(params=["stock", "mha", "mhe_mul"])
def variant(request: pytest.FixtureRequest) -> str:
    """Stock fairseq and two of ours."""
    return request.param

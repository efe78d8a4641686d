"""Fixtures of the studies: a finished run to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.trained import Finished, run_folder


@pytest.fixture
def source(finished: Finished) -> Path:
    """The quickstart's MHA run."""
    assert finished.returncode == 0, finished.stderr
    return run_folder(finished.out, "mha")

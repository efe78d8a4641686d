"""Fixtures of the studies: finished references to begin with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.trained import TABLE_SIZE


@pytest.fixture
def references(table: Path, tmp_path: Path) -> Path:
    """The folder of a study, with the references' runs as run-table made them."""
    out = tmp_path / "a study"
    for kind in ("mha", "mhe_mul"):
        shutil.copytree(table / f"tiny-{kind}-seed1", out / f"tiny-{kind}-seed1")
    return out


@pytest.fixture
def words(miniature: Path) -> Callable[..., list[str]]:
    """The words of a study of one seed: its name, its folder, more."""

    def make(name: str, out: Path, *more: str) -> list[str]:
        line = [name, "--data", str(miniature), "--out", str(out), *TABLE_SIZE]
        return [*line, "--seeds", "1", *more]

    return make

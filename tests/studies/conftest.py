"""Fixtures of the studies: finished runs to begin with, and how a study is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from studies.__main__ import main
from tests.fixtures.trained import TABLE_SIZE, Finished, run_folder


@pytest.fixture
def source(finished: Finished) -> Path:
    """The quickstart's MHA run."""
    assert finished.returncode == 0, finished.stderr
    return run_folder(finished.out, "mha")


@pytest.fixture
def references(table: Path, tmp_path: Path) -> Path:
    """The folder of a study of trainings, with the references' runs as run-table made them."""
    out = tmp_path / "a study"
    for kind in ("mha", "mhe_mul"):
        shutil.copytree(table / f"tiny-{kind}-seed1", out / f"tiny-{kind}-seed1")
    return out


@pytest.fixture
def of_trainings(miniature: Path) -> Callable[..., list[str]]:
    """The words of a study of trainings: its name, its folder, more."""

    def words(name: str, out: Path, *more: str) -> list[str]:
        return [name, "--data", str(miniature), "--out", str(out), *TABLE_SIZE, *more]

    return words


@pytest.fixture
def refused(
    of_trainings: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., None]:
    """See that a study of trainings ends in one line that holds a message, before any training."""

    def check(name: str, more: list[str], message: str) -> None:
        assert main(of_trainings(name, tmp_path / "out", *more)) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not list(tmp_path.rglob("train.log"))

    return check

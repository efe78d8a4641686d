"""A training resumes from its newest whole checkpoint; damaged checkpoints are renamed."""

import errno
from pathlib import Path

import pytest
import torch

from fairseq_mhe.runs.job import LAST
from fairseq_mhe.runs.train import restore
from tests.fixtures.checkpoints import save_weights
from tests.fixtures.refusals import refuses


def save(folder: Path, name: str, updates: int) -> Path:
    return save_weights(folder / name, {"w": torch.full((500,), float(updates))}, updates)


def cut(path: Path, fraction: float) -> bytes:
    """Truncate a file to a fraction of its size; return what remains."""
    part = path.read_bytes()[: int(path.stat().st_size * fraction)]
    path.write_bytes(part)
    return part


def updates_in(path: Path) -> int:
    return int(torch.load(path, weights_only=True)["model"]["w"][0])


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_after_a_truncated_last_checkpoint_the_newest_whole_one_is_used(
    tmp_path: Path, fraction: float
) -> None:
    for epoch, updates in ((1, 8), (1, 9), (2, 10)):
        save(tmp_path, f"checkpoint_{epoch}_{updates}.pt", updates)
    part = cut(save(tmp_path, LAST, 11), fraction)
    assert restore(tmp_path) == 10
    assert updates_in(tmp_path / LAST) == 10
    assert (tmp_path / f"{LAST}.damaged").read_bytes() == part
    save(tmp_path, "checkpoint_2_20.pt", 20)  # a kill came before it was copied
    assert restore(tmp_path) == 20
    assert updates_in(tmp_path / LAST) == 20


def test_half_written_checkpoints_are_renamed_and_whole_ones_stay(tmp_path: Path) -> None:
    last = save(tmp_path, LAST, 10)
    before = last.stat().st_mtime_ns
    cut(save(tmp_path, "checkpoint_best.pt", 10), 0.4)
    cut(save(tmp_path, "checkpoint_2_11.pt.tmp", 11), 0.4)
    save(tmp_path, "checkpoint_1_10.pt", 10)
    assert restore(tmp_path) == 10
    names = ["checkpoint_1_10.pt", "checkpoint_best.pt.damaged", LAST]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert last.stat().st_mtime_ns == before


def test_without_a_whole_checkpoint_training_starts_at_update_0(tmp_path: Path) -> None:
    assert restore(tmp_path) == 0
    cut(save(tmp_path, LAST, 5), 0.5)
    assert restore(tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == [f"{LAST}.damaged"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    whole = save(tmp_path, LAST, 5)
    monkeypatch.setattr(torch, "load", fail)
    with refuses("cannot resume the training: "):
        restore(tmp_path)
    assert list(tmp_path.iterdir()) == [whole]

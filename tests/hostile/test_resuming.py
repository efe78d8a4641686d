"""Resuming sets aside what is proven damaged; what cannot be read now stays, and is said."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.resuming import DAMAGED, restore

UPDATES = (10, 20, 30)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A training's folder with three whole checkpoints."""
    for updates in UPDATES:
        state = {
            "model": {"w": torch.full((50,), float(updates))},
            "optimizer_history": [{"num_updates": updates}],
        }
        torch.save(state, tmp_path / f"checkpoint_1_{updates}.pt")
    return tmp_path


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_what_cannot_be_read_now_stays(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    before = sorted(checkpoints.iterdir())
    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(UserError, match="training cannot go on: ") as refused:
        restore(checkpoints)
    assert "\n" not in str(refused.value)
    assert sorted(checkpoints.iterdir()) == before


@pytest.mark.parametrize("name", ["checkpoint_last.pt", "checkpoint_1_40.pt"])
def test_a_folder_in_a_checkpoints_place_is_named(checkpoints: Path, name: str) -> None:
    (checkpoints / name).mkdir()
    with pytest.raises(UserError, match=rf"{name} is a folder"):
        restore(checkpoints)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
def test_what_is_cut_is_set_aside_as_it_is(checkpoints: Path, kept: float) -> None:
    newest = checkpoints / "checkpoint_1_30.pt"
    part = newest.read_bytes()[: int(kept * newest.stat().st_size)]
    newest.write_bytes(part)
    assert restore(checkpoints) == 20
    assert (checkpoints / f"{newest.name}{DAMAGED}").read_bytes() == part
    assert not newest.exists()

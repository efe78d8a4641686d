"""From where a training goes on: the newest whole checkpoint, for any number of processes."""

import os
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.safe_load import save_checkpoint, updates_made
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path

LAST = "checkpoint_last.pt"
#: What the name of a checkpoint that is set aside ends in; fairseq and we look at *.pt only.
DAMAGED = ".damaged"


def restore(folder: Path, workers: int = 1, mini_batch: Mapping[str, Any] | None = None) -> int:
    """Make checkpoint_last.pt the newest whole one, and set aside what a kill left half-written.

    fairseq writes a checkpoint whole, then copies it over checkpoint_last.pt, where a kill can
    leave half a file.

    Args:
        folder: a training's --save-dir.
        workers: how many processes will resume it.
        mini_batch: fairseq's options that size what each takes at a time.

    Returns:
        How many updates the checkpoint holds; 0 where training begins at the beginning.

    Raises:
        UserError: a checkpoint that may be whole cannot be read now, or was trained in mini-batches
            of another size, so that no process can go on in the middle of an epoch.
    """
    newest, most = None, 0
    for path in folder.glob("*.pt.tmp"):
        path.unlink()
    # checkpoint_last.pt first, so that it stays where another one has as many updates.
    for path in sorted(folder.glob("checkpoint*.pt"), key=lambda path: path.name != LAST):
        try:
            updates = updates_made(read_checkpoint(path))
        except UserError as error:
            if not _is_damaged(path):
                raise UserError(f"training cannot go on: {error}") from error
            os.replace(path, path.with_name(f"{path.name}{DAMAGED}"))
            continue
        if updates > most:
            newest, most = path, updates
    if newest is None:
        return 0
    state = read_checkpoint(newest)
    _check_mini_batch(newest, state, mini_batch or {})
    if not _reshard(state, workers, folder / LAST) and newest.name != LAST:
        with atomic_path(folder / LAST) as temporary:
            shutil.copyfile(newest, temporary)
    return most


def _check_mini_batch(
    path: Path, state: Mapping[str, Any], mini_batch: Mapping[str, Any]
) -> None:
    before = (state.get("cfg") or {}).get("dataset") or {}
    for name in ("max_tokens", "batch_size"):
        size, now = before.get(name), mini_batch.get(name)
        if size is not None and now is not None and size != now:
            raise UserError(
                f"{path} comes of mini-batches of {name} {size}, not {now}: go on with as many "
                "devices as before"
            )


def _is_damaged(path: Path) -> bool:
    """Whether a file can be read and is no whole zip, as torch writes them."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is not None
    except OSError:
        return False
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, zlib.error):
        return True


def _reshard(state: dict[str, Any], workers: int, output: Path) -> bool:
    """Write a checkpoint for another number of processes to ``output``; whether there was need.

    fairseq stores how many mini-batches of the epoch each process took, and would go on after as
    many for any number of processes. All together took whole updates, so the new share is whole.
    """
    distributed = (state.get("cfg") or {}).get("distributed_training") or {}
    before = distributed.get("distributed_world_size", workers)
    if before == workers:
        return False
    position = state["extra_state"]["train_iterator"]
    position["iterations_in_epoch"] = position["iterations_in_epoch"] * before // workers
    distributed["distributed_world_size"] = workers
    save_checkpoint(state, output)
    return True

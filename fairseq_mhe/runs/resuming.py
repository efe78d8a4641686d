"""Where a training resumes: at the newest whole checkpoint."""

import os
import shutil
import zipfile
import zlib
from pathlib import Path

from fairseq_mhe.checkpoints.checkpoint import updates_made
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path

LAST = "checkpoint_last.pt"
#: What the name of a checkpoint that is set aside ends in; fairseq and we look at *.pt only.
DAMAGED = ".damaged"


def restore(folder: Path, workers: int = 1) -> int:
    """Make checkpoint_last.pt the newest whole one, and set aside what a kill left half-written.

    fairseq writes a checkpoint whole, then copies it over checkpoint_last.pt, where a kill can
    leave half a file.

    Args:
        folder: a training's --save-dir.
        workers: how many processes will resume it.

    Returns:
        How many updates the checkpoint holds; 0 where training begins at the beginning.

    Raises:
        UserError: a checkpoint that may be whole cannot be read now, or was trained by another
            number of processes, each of which took another share of the epoch.
    """
    newest, most, before = None, 0, workers
    for path in folder.glob("*.pt.tmp"):
        path.unlink()
    # checkpoint_last.pt first, so that it stays where another one has as many updates.
    for path in sorted(folder.glob("checkpoint*.pt"), key=lambda path: path.name != LAST):
        try:
            state = read_checkpoint(path)
            updates = updates_made(state)
        except UserError as error:
            if not _is_damaged(path):
                raise UserError(f"training cannot go on: {error}") from error
            os.replace(path, path.with_name(f"{path.name}{DAMAGED}"))
            continue
        if updates > most:
            newest, most = path, updates
            trained = (state.get("cfg") or {}).get("distributed_training") or {}
            before = trained.get("distributed_world_size", workers)
    if before != workers:
        raise UserError(
            f"{newest} was trained on {before} devices, not {workers}: resume on as many as before"
        )
    if newest and newest.name != LAST:
        with atomic_path(folder / LAST) as temporary:
            shutil.copyfile(newest, temporary)
    return most


def _is_damaged(path: Path) -> bool:
    """Whether a file can be read and is no whole zip, as torch writes them."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is not None
    except OSError:
        return False
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, zlib.error):
        return True

"""Folders of work that is done once: their version, the key of their inputs, their lock."""

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError

#: Raised by whoever changes what the files of run and data folders hold.
FOLDER_VERSION = 4
#: How the names of temporary folders begin, which a killed process leaves.
WORK_PREFIX = ".fairseq-mhe-work-"


def key(inputs: Mapping[str, Any]) -> str:
    """A hash of JSON values, whatever the order of the names."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def check_folder_version(folder: Path, content: Mapping[str, Any], advice: str) -> None:
    """See that the ``content`` of a folder's config.json or manifest.json is of this version.

    Raises:
        UserError: it is of another version.
    """
    if content.get("folder_version") != FOLDER_VERSION:
        raise UserError(f"{folder} was made by another version of fairseq-mhe: {advice}")


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder``, and remove the work folders of a killed one.

    Raises:
        UserError: as `locked`.
    """
    with locked(folder / ".lock"):
        for work in folder.glob(f"{WORK_PREFIX}*"):
            shutil.rmtree(work, ignore_errors=True)
        yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from the same work in the folder of the lock ``path``, which is made.

    Raises:
        UserError: another process is at work there, or the folder cannot be written.
    """
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = path.open("a")
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or folder}: {error.strerror or error}"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"another fairseq-mhe is at work in {folder}: wait for its end, or stop it"
            ) from error
        yield

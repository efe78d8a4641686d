"""Files that are whole or absent: what lasts is written beside its place and renamed into it."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError

GB = 10**9


def check_output(path: Path) -> None:
    """See that ``path`` is one at which a file can be written or replaced; commands do so first.

    Raises:
        UserError: something else than a file is there.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"cannot write {path}: it is no file, and only files are replaced")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, which takes its place when the block ends well.

    Raises:
        UserError: something else than a file is there, or it cannot be written.
    """
    check_output(path)
    with _renamed_into(path) as temporary:
        yield temporary


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """The same for a folder, which the block makes.

    Raises:
        UserError: ``path`` is there already, or cannot be written.
    """
    if path.exists():
        raise UserError(f"{path} exists: remove it, or name another folder")
    with _renamed_into(path) as temporary:
        yield temporary


@contextlib.contextmanager
def _renamed_into(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_parts_of_dead_processes(path)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        told = error.strerror or error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = ": make room and give the same command again" if full else ""
        raise UserError(f"cannot write {path}: {told}{advice}") from error
    finally:
        _remove(temporary)


def _remove_parts_of_dead_processes(path: Path) -> None:
    """Remove what a killed process left beside ``path``."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = part.name.split(".")[-2]
        if process.isdecimal() and not Path("/proc", process).exists():
            _remove(part)


def _remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path``, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON to ``path``, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    """The file's SHA-256 in hexadecimal, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_all(paths: Sequence[Path], at_once: int) -> dict[Path, str]:
    """The SHA-256 of each file, by threads: hashing leaves Python free."""
    with ThreadPoolExecutor(at_once) as threads:
        return dict(zip(paths, threads.map(sha256, paths), strict=True))


def read_json(path: Path) -> Any:
    """The value that a JSON file holds.

    Raises:
        UserError: the file is missing, cannot be read, or is not JSON.
    """
    check_input(path, "give another path")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}; restore it, or delete it") from error


def check_input(path: Path, advice: str) -> None:
    """See that ``path`` is a file; ``advice``: what to do if not.

    Raises:
        UserError: it is missing, or a folder, a device or a pipe.
    """
    if not path.is_file():
        problem = "is no file" if path.exists() else "does not exist"
        raise UserError(f"{path} {problem}: {advice}")


def check_room(folder: Path, need: int, purpose: str) -> None:
    """See before something long begins that the disk has room for it.

    Raises:
        UserError: the disk has less.
    """
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UserError(
            f"the disk of {folder} has {free / GB:.1f} GB free, {purpose} needs about "
            f"{need / GB:.1f} GB; make room or choose another folder"
        )


def check_writable(folder: Path) -> None:
    """Make ``folder``, and see that files can be made in it.

    Raises:
        UserError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror or error}") from error


def no_colon(path: Path) -> None:
    """Raises UserError for a path that fairseq would take for several."""
    if ":" in str(path):
        raise UserError(
            f"fairseq splits paths at colons, and {path} has one: choose another folder"
        )


def output_folder(path: Path) -> Path:
    """The absolute path of a folder in which fairseq's commands will write; it is made.

    Raises:
        UserError: its path has a colon, or it cannot be written in.
    """
    folder = path.resolve()
    no_colon(folder)
    check_writable(folder)
    return folder

"""Atomic writes, readers with clear errors, and locks on folders."""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from fairseq_mhe.common.errors import UserError, reason_of

Json = dict[str, Any]  # the content of a JSON file
#: The format of run and data folders: raise it with each change of what their files hold.
FOLDER_VERSION = 4
#: Prefix of temporary folders, by which `lock_folder` recognises those of a killed process.
WORK_PREFIX = ".fairseq-mhe-work-"


class _JsonObject(Json):
    """An object of a JSON file; looking up a missing key raises UserError with the file's path."""

    def __init__(self, path: Path, items: Mapping[str, Any]) -> None:
        super().__init__(items)
        self._path = path

    def __missing__(self, key: str) -> Any:
        raise UserError(f"{self._path} has no {key!r}: restore it, or delete it")


def check_input(path: Path, advice: str) -> None:
    """Raise UserError if ``path`` is not a file (with ``advice``), or cannot be looked at."""
    try:
        if stat.S_ISREG(path.stat().st_mode):
            return
        problem = "is not a file"
    except (FileNotFoundError, NotADirectoryError):
        problem = "does not exist"
    except OSError as error:  # such as no permission for its folder, or a loop of links
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    raise UserError(f"{path} {problem}: {advice}")


def check_output(path: Path, *inputs: Path) -> None:
    """Raise UserError if ``path`` is an input, not a regular file, or below a file."""
    if path.resolve() in map(Path.resolve, inputs):
        raise UserError(f"{path} is an input: name another file for the output")
    if path.exists() and not path.is_file():
        problem = "it is not a regular file; name another file"
        raise UserError(f"cannot write {path}: {problem}")
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise UserError(f"{parent} is a file: name a folder for the output")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give the block a temporary path; the file there replaces ``path`` if the block succeeds.

    Raises UserError if ``path`` cannot be written. An OSError about another file passes.
    """
    check_output(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
            process = part.name.split(".")[-2]
            if process.isdecimal() and not Path("/proc", process).exists():
                _remove(part)  # a killed process left it
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        # The error of a copy has two names, of which the second is the output's.
        named = Path(error.filename2 or error.filename or path)
        if named not in (path, *path.parents) and not named.is_relative_to(temporary):
            raise  # it is about another file
        raise UserError(f"cannot write {path}: {reason_of(error)}") from error
    finally:
        _remove(temporary)


def new_folder(path: Path) -> AbstractContextManager[Path]:
    """Give the block a temporary path for a folder, like `atomic_path`; ``path`` must be new."""
    if path.exists():
        raise UserError(f"{path} exists: remove it, or name another folder")
    return atomic_path(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists():
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, form: type = dict) -> Any:
    """Return the value of a JSON file, which must be of type ``form``.

    Raises UserError if it cannot be read or has another type; so does the look-up of a missing key.
    """
    check_input(path, "give another path")
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text, object_hook=partial(_JsonObject, path))
        if not isinstance(value, form):
            raise ValueError("its outermost value is of another type")
    except (OSError, ValueError) as error:
        advice = "restore it, or delete it"
        raise UserError(f"cannot read {path}: {error}; {advice}") from error
    return value


def yaml_beside(module: str, name: str) -> Any:
    """Return the content of the YAML file ``name`` in the folder of a module's ``__file__``."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may lack libyaml
    return yaml.load(Path(module).with_name(name).read_text("utf-8"), loader)  # noqa: S506


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal; the file need not fit into memory."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_all(paths: Sequence[Path], threads: int) -> dict[Path, str]:
    """Return each file's SHA-256; threads run at once, because hashing releases Python's lock."""
    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(paths, pool.map(sha256, paths), strict=True))


def check_no_colon(path: Path) -> None:
    """Raise UserError if ``path`` has a colon, at which fairseq would split it."""
    if ":" in str(path):
        problem = f"fairseq splits paths at colons, and {path} has one"
        raise UserError(f"{problem}: choose another folder")


def output_folder(path: Path) -> Path:
    """Create a folder if needed, return its absolute path; UserError if it is not writable."""
    folder = path.resolve()
    check_no_colon(folder)
    check_output(folder / ".part")  # a file that cannot be there yet
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {reason_of(error)}") from error


def check_folder_version(folder: Path, content: Mapping[str, Any], advice: str) -> None:
    """Raise UserError if ``content``, from a folder's JSON file, is of another version."""
    version = content.get("folder_version")
    if isinstance(version, int) and version > FOLDER_VERSION:
        raise UserError(f"{folder} was made by a newer fairseq-mhe: update fairseq-mhe")
    if version != FOLDER_VERSION:
        raise UserError(f"{folder} was made by an older fairseq-mhe: {advice}")


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock ``folder``, or raise UserError; remove temporary folders that a killed process left."""
    folder = output_folder(folder)
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = f"another fairseq-mhe is at work in {folder}"
            raise UserError(f"{problem}: wait for its end, or stop it") from error
        except OSError as error:  # as on some network file systems
            problem = f"cannot lock {folder}: {reason_of(error)}"
            raise UserError(f"{problem}; choose one on another file system") from error
        for work in folder.glob(f"{WORK_PREFIX}*"):
            shutil.rmtree(work, ignore_errors=True)
        yield

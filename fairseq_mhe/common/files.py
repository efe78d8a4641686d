"""Files that are whole or absent, and folders that one process at a time works in."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from fairseq_mhe.common.errors import UserError

#: What a JSON file holds.
Json = dict[str, Any]
#: Raised by whoever changes what the files of run and data folders hold.
FOLDER_VERSION = 4
#: How the names of temporary folders begin, which a killed process leaves.
WORK_PREFIX = ".fairseq-mhe-work-"


def check_input(path: Path, advice: str) -> None:
    """Raises UserError, which ends in ``advice``, where ``path`` is no file."""
    if not path.is_file():
        problem = "is no file" if path.exists() else "does not exist"
        raise UserError(f"{path} {problem}: {advice}")


def check_output(path: Path, *inputs: Path) -> None:
    """Raises UserError where ``path`` is an input, no regular file, or lies below a file."""
    if path.resolve() in map(Path.resolve, inputs):
        raise UserError(f"{path} is an input: name another file for the output")
    if path.exists() and not path.is_file():
        problem = "it is not a regular file; name another file"
        raise UserError(f"cannot write {path}: {problem}")
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise UserError(f"cannot write {path}: {parent} is a file; name a folder")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path beside ``path``, which takes its place when the block ends well, or UserError."""
    check_output(path)
    with _renamed_into(path) as temporary:
        yield temporary


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """The same for a folder, which the block makes; UserError where it is there already."""
    if path.exists():
        raise UserError(f"{path} exists: remove it, or name another folder")
    check_output(path)
    with _renamed_into(path) as temporary:
        yield temporary


@contextlib.contextmanager
def _renamed_into(path: Path) -> Iterator[Path]:
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
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = ": make room and give the same command again" if full else ""
        reason = f"{error.strerror or error}{advice}"
        raise UserError(f"cannot write {path}: {reason}") from error
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists():
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Indented, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, form: type = dict) -> Any:
    """The object, or another ``form``, that a JSON file holds.

    UserError where it is missing, unreadable or of another form, or has not what is asked of it.
    """

    class Object(Json):
        def __missing__(self, name: str) -> Any:
            raise UserError(f"{path} has no {name!r}: restore it, or delete it")

    check_input(path, "give another path")
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_hook=Object)
        if not isinstance(value, form):
            raise ValueError("its outermost value is of another type")
    except (OSError, ValueError) as error:
        advice = "restore it, or delete it"
        raise UserError(f"cannot read {path}: {error}; {advice}") from error
    return value


def yaml_beside(module: str, name: str) -> Any:
    """What the package's own YAML file ``name`` holds, in the folder of a module's ``__file__``."""
    return yaml.safe_load(Path(module).with_name(name).read_text("utf-8"))


def sha256(path: Path) -> str:
    """The file's SHA-256 in hexadecimal, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_all(paths: Sequence[Path], at_once: int) -> dict[Path, str]:
    """The SHA-256 of each file, by threads: hashing leaves Python free."""
    with ThreadPoolExecutor(at_once) as threads:
        return dict(zip(paths, threads.map(sha256, paths), strict=True))


def no_colon(path: Path) -> None:
    """Raises UserError for a path that fairseq would take for several."""
    if ":" in str(path):
        problem = f"fairseq splits paths at colons, and {path} has one"
        raise UserError(f"{problem}: choose another folder")


def output_folder(path: Path) -> Path:
    """Make a folder that commands write in; its absolute path, or UserError."""
    folder = path.resolve()
    no_colon(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror or error}") from error


def check_folder_version(folder: Path, content: Mapping[str, Any], advice: str) -> None:
    """Raises UserError where a folder's config.json or manifest.json is of another version."""
    if content.get("folder_version") != FOLDER_VERSION:
        raise UserError(f"{folder} was made by another version of fairseq-mhe: {advice}")


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder``, or UserError; remove what a killed one left there."""
    place = output_folder(folder)
    with (place / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            problem = f"another fairseq-mhe is at work in {place}"
            raise UserError(f"{problem}: wait for its end, or stop it") from error
        for work in folder.glob(f"{WORK_PREFIX}*"):
            shutil.rmtree(work, ignore_errors=True)
        yield

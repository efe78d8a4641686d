"""What is inside a .deb file, read in memory: no name in it decides where a file is written."""

import bz2
import gzip
import lzma
import posixpath
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import arpy
import zstandard

from debian.control import source_of, stanzas
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.archive import leads_out

OPENERS: dict[str, Callable[[Any], Any]] = {
    ".tar": lambda stream: stream,
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": lambda stream: zstandard.ZstdDecompressor().stream_reader(stream),
}
#: Debian's rule; a name is part of the paths of files.
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{0,100}")
DAMAGE = (
    arpy.ArchiveFormatError,
    arpy.ArchiveAccessError,
    tarfile.TarError,
    lzma.LZMAError,
    zstandard.ZstdError,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    KeyError,
)


@dataclass(frozen=True)
class Package:
    """A package's file and what identifies it; ``source``: what it is built from."""

    name: str
    version: str
    source: str
    path: Path
    sha256: str


def read_package(path: Path) -> Package:
    """Identify a .deb file by its control data.

    Raises:
        UserError: it is no package, or damaged.
    """
    with _faults(path):
        control = dict(_members(path, "control.tar", lambda name: name == "control"))["control"]
        (stanza,) = stanzas(control.decode("utf-8").split("\n"))
        name = stanza["Package"]
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no package's name")
        return Package(name, stanza["Version"], source_of(stanza), path, sha256(path))


def read_documents(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Path (usr/share/...) and content of each wanted regular file, in the package's order.

    Raises:
        UserError: the file is damaged, or a member's path leads out of the package.
    """
    with _faults(path):
        yield from _members(path, "data.tar", is_wanted)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{path} is no Debian package, or damaged: {reason}; delete it to have it fetched again"
        ) from error


def _members(
    path: Path, part: str, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Of one of the two archives in a .deb file."""
    with path.open("rb") as file, arpy.Archive(fileobj=file) as archive:
        name = next(
            (name for name in map(bytes.decode, archive.namelist()) if name.startswith(part)), ""
        )
        if not name:
            raise ValueError(f"it has no {part}")
        with archive.open(name.encode()) as member:
            stream: IO[bytes] = OPENERS[posixpath.splitext(name)[1]](member)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for entry in tar:
                    inner = _inner_path(path, entry.name)
                    content = tar.extractfile(entry) if entry.isreg() and is_wanted(inner) else None
                    if content is not None:
                        yield inner, content.read()


def _inner_path(package: Path, name: str) -> str:
    inner = posixpath.normpath(name.removeprefix("./"))
    if leads_out(inner):
        raise UserError(
            f"{package} is refused: its member {name!r} leads out of the package; "
            "this is no file of Debian's"
        )
    return inner

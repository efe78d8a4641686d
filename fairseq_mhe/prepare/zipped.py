"""Texts in zip archives, named NAME.zip/TEXT: they are read in place, nothing is unpacked."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fairseq_mhe.common.errors import UserError


def archive_of(path: Path) -> Path | None:
    """Return the zip archive that the path names a file of, or None."""
    for parent in path.parents:
        if parent.suffix == ".zip" and parent.is_file():
            return parent
    return None


def text_in(archive: Path, langs: tuple[str, str]) -> Path:
    """Return the parallel text in an archive of OPUS: NAME.zip/PREFIX or NAME.zip/TABLE.tsv.

    Raises UserError if the archive has no such text, or several.
    """
    with _opened(archive) as zipped:
        names = [name for name in zipped.namelist() if not name.endswith("/")]
    source, target = (f".{lang}" for lang in langs)
    prefixes = [name.removesuffix(source) for name in names if name.endswith(source)]
    texts = [prefix for prefix in prefixes if f"{prefix}{target}" in names]
    texts += [name for name in names if name.endswith(".tsv")]
    if len(texts) != 1:
        found = ", ".join(texts or names[:5])
        problem = f"holds {len(texts)} texts of {' and '.join(langs)} ({found})"
        raise UserError(f"{archive} {problem}: name the text in it: {archive}/PREFIX")
    return archive / texts[0]


def size_in(archive: Path, path: Path) -> int | None:
    """Return the number of bytes of a file in an archive, or None if it has no such file."""
    with _opened(archive) as zipped:
        try:
            return zipped.getinfo(_name(path, archive)).file_size
        except KeyError:
            return None


@contextlib.contextmanager
def stream_of(archive: Path, path: Path) -> Iterator[IO[bytes]]:
    """Open a file in an archive for reading; UserError if it is damaged or encrypted."""
    with _opened(archive) as zipped, zipped.open(_name(path, archive)) as stream:
        yield stream


def _name(path: Path, archive: Path) -> str:
    return path.relative_to(archive).as_posix()


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as zipped:
            yield zipped
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UserError(f"cannot read {archive}: {error}; give another file") from error

"""Reading parallel text: plain or compressed files, checked line by line, both sides in step."""

import bz2
import contextlib
import gzip
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input

MAX_LINE_BYTES = 1_000_000  # longer than any sentence: a binary file, or one without line ends
BOM = "\ufeff"
CARRIAGE_RETURNS = "lines end with carriage returns; convert the file to line feeds"
_OPENERS: Mapping[str, Any] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
#: Endings of the names of plain and compressed text.
SUFFIXES = tuple(_OPENERS)
ZSTD = ".zst"  # not read: Python has no module for it
#: Read in place of a path.
STANDARD_INPUT = Path("standard input")


def side_path(prefix: Path, lang: str) -> Path:
    """The file of one side: ``PREFIX.LANG``, or the same compressed with gzip, xz or bzip2.

    Raises:
        UserError: the file is missing or empty, or cannot be read.
    """
    for suffix in (*SUFFIXES, ZSTD):
        path = Path(f"{prefix}.{lang}{suffix}")
        with as_user_errors(path):
            if path.is_file():
                return existing_text(path)
    raise UserError(
        f"{prefix}.{lang} is not there (nor with {', '.join(SUFFIXES[1:])}); PREFIX.{lang} must "
        "name a text file"
    )


def existing_text(path: Path) -> Path:
    """``path`` itself, if it is a text file that can be read; else raises UserError."""
    if path.suffix == ZSTD:
        raise UserError(f"{path} is compressed with zstd: decompress it first, with unzstd")
    check_input(path, "name a text file, which can be read several times")
    with as_user_errors(path), path.open("rb") as stream:
        if not stream.read(1):
            raise UserError(f"{path} is empty; parallel text needs at least one line on each side")
    return path


def _open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file; the ending of its name says how it is compressed."""
    if path is STANDARD_INPUT:
        return open(0, "rb", closefd=False)
    return cast(BinaryIO, _OPENERS.get(path.suffix, open)(path, "rb"))


def _fault(raw: bytes) -> str | None:
    """Why this line is not one of clean text, or None."""
    if len(raw) > MAX_LINE_BYTES and b"\r" in raw:
        return CARRIAGE_RETURNS
    if len(raw) > MAX_LINE_BYTES:
        return f"longer than {MAX_LINE_BYTES:,} bytes; is this one sentence a line?"
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1} (0x{raw[error.start]:02x})"
        return f"{where} is not valid UTF-8; convert the file first"
    return "holds a NUL character; is this a text file?" if "\0" in text else None


def read_lines(path: Path, at_once: int = 1000) -> Iterator[str]:
    """The lines of a UTF-8 file, ended by line feeds only (a stray carriage return ends none).

    ``at_once``: lines that are read before the first is yielded.

    Raises:
        UserError: the file cannot be read, is damaged, or a line is not clean text.
    """
    first = 1
    with as_user_errors(path), _open_bytes(path) as stream:
        while lines := _some_lines(path, stream, first, at_once):
            yield from _decode_lines(path, first, b"".join(lines))
            first += len(lines)


@contextlib.contextmanager
def as_user_errors(path: Path) -> Iterator[None]:
    """Raise what goes wrong while ``path`` is read as a UserError."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is damaged or cut short: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_pairs(paths: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    """The pairs of a parallel text: of its two files, or of its one file with tabs.

    Raises:
        UserError: a file cannot be read, is damaged, or a line is not clean text or not two
            columns; or the files differ in their number of lines.
    """
    if len(paths) == 1:
        yield from _table_pairs(paths[0])
        return
    source, target = paths
    for pair in zip_longest(read_lines(source), read_lines(target)):
        if None in pair:
            raise _misaligned({str(path): count_lines(path) for path in paths})
        yield pair


def _table_pairs(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if not line.strip() and len(columns) == 1:
            columns = ["", ""]
        if len(columns) != 2:
            raise UserError(
                f"{path}, line {number}: {len(columns)} columns; "
                "a line must be source TAB target, no more"
            )
        yield columns[0], columns[1]


def _some_lines(path: Path, stream: BinaryIO, first: int, size: int) -> list[bytes]:
    lines: list[bytes] = []
    for line in islice(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), size):
        if len(line) > MAX_LINE_BYTES:  # at once: the next may be as long
            raise UserError(f"{path}, line {first + len(lines)}: {_fault(line)}")
        lines.append(line)
    return lines


def _misaligned(lines: Mapping[str, int]) -> UserError:
    """The error for two sides, name -> number of lines, that differ in length."""
    (source, source_lines), (target, target_lines) = lines.items()
    return UserError(
        f"{source} has {source_lines:,} lines, {target} has {target_lines:,}: the sides of a "
        "parallel text must be aligned line by line"
    )


def _decode_lines(path: Path, first: int, raw: bytes) -> list[str]:
    """Checked lines of text without their ends; the first has the number ``first``."""
    text = raw.decode("utf-8", errors="replace")
    if "\0" in text or "\ufffd" in text:
        for number, line in enumerate(raw.split(b"\n"), start=first):
            if fault := _fault(line):
                raise UserError(f"{path}, line {number}: {fault}")
    if first == 1 and "\r" in text.rstrip() and "\n" not in text:
        raise UserError(f"{path}, line 1: {CARRIAGE_RETURNS}")
    lines = text.removesuffix("\n").split("\n")
    if first == 1:
        lines[0] = lines[0].removeprefix(BOM)
    return [line.rstrip("\r") for line in lines] if "\r" in text else lines


def read_whole(path: Path) -> str:
    """The text of a UTF-8 file, in which lines may have any length.

    Raises:
        UserError: the file cannot be read, is damaged, or is not clean text.
    """
    with as_user_errors(path), _open_bytes(path) as stream:
        try:
            return stream.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}: byte {error.start + 1} is not valid UTF-8; convert the file first"
            ) from None


def count_lines(path: Path) -> int:
    """The number of lines, not decoded; the last may lack its line end."""
    count, last = 0, b"\n"
    with as_user_errors(path), _open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            count += block.count(b"\n")
            last = block
    return count + (not last.endswith(b"\n"))


def aligned_lines(source: Path, target: Path) -> int:
    """The number of lines that both sides have.

    Raises:
        UserError: the sides differ in their number of lines.
    """
    counts = count_lines(source), count_lines(target)
    if counts[0] != counts[1]:
        raise _misaligned({source.name: counts[0], target.name: counts[1]})
    return counts[0]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a UTF-8 text file with line feeds."""
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Piece:
    """Whole lines of a file, by their place, so that worker processes read them themselves."""

    path: Path
    start: int  # bytes
    size: int

    def read(self) -> str:
        """The lines, with their ends."""
        with self.path.open("rb") as stream:
            stream.seek(self.start)
            return stream.read(self.size).decode("utf-8")


def text_pieces(path: Path, size: int) -> Iterator[Piece]:
    """A file in pieces of whole lines of about ``size`` bytes."""
    with path.open("rb") as stream:
        start, end = 0, stream.seek(0, os.SEEK_END)
        while start < end:
            stream.seek(start + size)
            stream.readline()
            after = min(stream.tell(), end)
            yield Piece(path, start, after - start)
            start = after

"""Read plain or compressed text, check it line by line, and pair the lines of both sides."""

import bz2
import contextlib
import glob
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.zipped import archive_of, size_in, stream_of

_ZSTD = "compressed by Zstandard, which is not read here: unpack it first (zstd -d)"
#: The first bytes of files that are no plain text -> what they are, and what to do.
_KINDS = {
    b"PK\x03\x04": "a zip archive: unpack it first, or name a text inside (NAME.zip/TEXT)",
    b"\x28\xb5\x2f\xfd": _ZSTD,
    b"\x1f\x8b": "compressed by gzip: let its name end in .gz",
    b"\xfd7zXZ": "compressed by xz: let its name end in .xz",
    b"BZh": "compressed by bzip2: let its name end in .bz2",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    b"\xff\xfe": "text in UTF-16: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)",
    b"\xfe\xff": "text in UTF-16: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)",
}
_HEADINGS = {"source", "target", "src", "tgt", "trg"}
_HEADINGS |= {"reference", "sentence", "translation"}
#: A field as CSV writes it if it holds quotes: in quotes, and each quote inside twice.
_CSV_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
_SHOWN_EVERY = 100_000  # lines between two looks at how much of a file is read
_MB = 10**6

OPENERS: Any = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
SUFFIXES = tuple(OPENERS)
#: Not a path: `read_lines` reads standard input instead.
STANDARD_INPUT = Path("standard input")


def side_path(prefix: Path, lang: str) -> Path:
    """Return the path PREFIX.LANG, or that of a compressed file; UserError if missing or empty."""
    for suffix in SUFFIXES:
        path = Path(f"{prefix}.{lang}{suffix}")
        if _size(path) is not None:
            return existing_text(path)
    for path in (prefix, *prefix.parent.glob(f"{glob.escape(prefix.name)}.{lang}.*")):
        if path.is_file() and (kind := file_kind(path)):
            raise UserError(f"{path} is {kind}")
    endings = ", ".join(SUFFIXES[1:])
    advice = f"give another path, without its .{lang}"
    if prefix.is_file():
        advice = "name two files by their PREFIX, or a table (source TAB target) NAME.tsv"
    raise UserError(f"{prefix}.{lang} does not exist (nor with {endings}): {advice}")


def existing_text(path: Path) -> Path:
    """Return ``path``; raise UserError unless it is a regular file with content."""
    size = _size(path)
    if size is None:
        check_input(path, "name a text file; a pipe cannot be read several times")
    if not size:
        raise UserError(f"{path} is empty; give a text of at least one line")
    return path


def _size(path: Path) -> int | None:
    """Return the number of bytes of a regular file, or of a file in a zip archive; else None."""
    if archive := archive_of(path):
        return size_in(archive, path)
    return path.stat().st_size if path.is_file() else None


def file_kind(path: Path) -> str:
    """Return what a file without plain text is, and what to do; "" if that is unknown."""
    with path.open("rb") as stream:
        begin = stream.read(8)
    for magic, kind in _KINDS.items():
        if begin.startswith(magic):
            return kind
    return ""


def _raw_lines(path: Path, board: Board | None) -> Iterator[bytes]:
    """Yield the lines of a file with their line ends; the suffix says how it is compressed."""
    try:
        with contextlib.ExitStack() as stack:
            archive = archive_of(path)
            if archive:
                file: Any = stack.enter_context(stream_of(archive, path))
            else:
                # Not sys.stdin: Python aborts at its end if a thread still reads that.
                source = os.dup(0) if path is STANDARD_INPUT else path
                file = stack.enter_context(open(source, "rb"))
            lines = file
            if path.suffix in SUFFIXES[1:]:
                lines = stack.enter_context(OPENERS[path.suffix](file, "rb"))
            for number, line in enumerate(lines, start=1):
                yield line
                if board and number % _SHOWN_EVERY == 0:
                    size = _size(path) or 0
                    board.update(path.name, file.tell() // _MB, size // _MB)
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}; give another file") from error


def read_lines(path: Path, board: Board | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file; only line feeds end lines. UserError for invalid text.

    A byte order mark is removed from each line: files that were joined have several. ``board``
    shows how many megabytes of a large file are read.
    """
    for number, raw in enumerate(_raw_lines(path, board), start=1):
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            if number == 1 and path.is_file() and (kind := file_kind(path)):
                raise UserError(f"{path} is {kind}") from None
            byte = f"byte {error.start + 1} (0x{raw[error.start]:02x})"
            advice = "is not valid UTF-8; convert the file first"
            raise UserError(f"{path}, line {number}: {byte} {advice}") from None
        if "\0" in line:
            raise UserError(f"{path}, line {number}: holds a NUL character: is it text?")
        yield line.replace("\ufeff", "").rstrip("\r\n")


def read_pairs(
    paths: tuple[Path, ...], board: Board | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two files, or of one table; UserError for misaligned or invalid text."""
    first, *others = paths
    lines = read_lines(first, board)
    if not others:
        for number, line in enumerate(lines, start=1):
            columns = line.split("\t") if line.strip() else ["", ""]
            if len(columns) != 2:
                where = f"{first}, line {number}: {len(columns)} columns"
                raise UserError(f"{where}; a line must be source TAB target, no more")
            yield columns[0], columns[1]
        return
    other = others[0]
    other_lines = read_lines(other)
    for number, pair in enumerate(zip_longest(lines, other_lines), start=1):
        source, target = pair
        if source is None or target is None:
            long, short = (first, other) if target is None else (other, first)
            rest = sum(1 for side in (lines, other_lines) for _ in side)
            counts = f"{number + rest:,} lines, {short.name} has {number - 1:,}"
            advice = "the sides must be aligned line by line"
            raise UserError(f"{long} has {counts}: {advice}")
        yield source, target


def doubts_of_table(pairs: Sequence[tuple[str, ...]], langs: tuple[str, str]) -> str:
    """Return what is unlike source TAB target in a table's first pairs; "" if nothing is."""
    header = [column.strip().casefold() for column in pairs[0]]
    if all(word in _HEADINGS or word in langs for word in header):
        return "line 1 looks like a header, but counts as a pair: remove it"
    quoted = sum(any(map(_CSV_QUOTED.fullmatch, pair)) for pair in pairs)
    if quoted:
        share = f"{quoted:,} of the first {len(pairs):,} lines"
        return f"{share} have fields in the quotes of CSV, which stay: write it without quoting"
    return ""


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a UTF-8 file."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def text_blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines, about ``size`` bytes each, for workers to decode."""
    with path.open("rb") as stream:
        while block := stream.read(size) + stream.readline():
            yield block


def lines_of(block: bytes) -> list[str]:
    """Return the lines of a block without their line feeds."""
    return block.decode().removesuffix("\n").split("\n")


def read_whole(path: Path) -> str:
    """Return the text of a UTF-8 file, checked as in `read_lines`."""
    return "\n".join(read_lines(path))

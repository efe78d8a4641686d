"""Read plain or compressed text, check it line by line, and pair the lines of both sides."""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input

OPENERS: Any = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
SUFFIXES = tuple(OPENERS)
#: Not a path: `read_lines` reads standard input instead.
STANDARD_INPUT = Path("standard input")


def side_path(prefix: Path, lang: str) -> Path:
    """Return the path PREFIX.LANG, or that of a compressed file; UserError if missing or empty."""
    for suffix in SUFFIXES:
        path = Path(f"{prefix}.{lang}{suffix}")
        if path.is_file():
            return existing_text(path)
    endings = ", ".join(SUFFIXES[1:])
    advice = f"give another path, without its .{lang}"
    raise UserError(f"{prefix}.{lang} does not exist (nor with {endings}): {advice}")


def existing_text(path: Path) -> Path:
    """Return ``path``; raise UserError unless it is a regular file with content."""
    check_input(path, "name a text file; a pipe cannot be read several times")
    if not path.stat().st_size:
        raise UserError(f"{path} is empty; give a text of at least one line")
    return path


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their line ends; the suffix says how it is compressed."""
    try:
        # Not sys.stdin: Python aborts at its end if a thread still reads that.
        source = os.dup(0) if path is STANDARD_INPUT else path
        with OPENERS.get(path.suffix, open)(source, "rb") as stream:
            yield from stream
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}; give another file") from error


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file; only line feeds end lines. UserError for invalid text."""
    for number, raw in enumerate(_raw_lines(path), start=1):
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} (0x{raw[error.start]:02x})"
            advice = "is not valid UTF-8; convert the file first"
            raise UserError(f"{path}, line {number}: {byte} {advice}") from None
        if "\0" in line:
            raise UserError(f"{path}, line {number}: holds a NUL character: is it text?")
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield line.rstrip("\r\n")


def read_pairs(paths: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two files, or of one table; UserError for misaligned or invalid text."""
    if len(paths) == 1:
        for number, line in enumerate(read_lines(paths[0]), start=1):
            columns = line.split("\t") if line.strip() else ["", ""]
            if len(columns) != 2:
                where = f"{paths[0]}, line {number}: {len(columns)} columns"
                raise UserError(f"{where}; a line must be source TAB target, no more")
            yield columns[0], columns[1]
        return
    for source, target in zip_longest(*map(read_lines, paths)):
        if source is None or target is None:
            first, second = map(count_lines, paths)
            lines = f"{paths[0]} has {first:,} lines, {paths[1].name} has {second:,}"
            raise UserError(f"{lines}: the sides must be aligned line by line")
        yield source, target


def count_lines(path: Path) -> int:
    """Count lines without decoding them; the last may lack its line feed."""
    return sum(1 for _ in _raw_lines(path))


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

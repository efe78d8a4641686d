"""Reading parallel text: plain or compressed files, checked line by line, both sides in step."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import zlib
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from fairseq_mhe.errors import UserError

Item = TypeVar("Item")

MAX_LINE_BYTES = 1_000_000  # longer than any sentence: a binary file, or one without line ends
BOM = "\ufeff"
SUFFIXES = ("", ".gz", ".xz")


def side_path(prefix: Path, lang: str) -> Path:
    """The file of one side: ``PREFIX.LANG``, or the same compressed with gzip or xz.

    Raises:
        UserError: there is none, or it is empty or cannot be read.
    """
    names = [Path(f"{prefix}.{lang}{suffix}") for suffix in SUFFIXES]
    with as_user_errors(names[0]):
        path = next((name for name in names if name.is_file()), None)
        if path is None:
            raise UserError(f"{names[0]} is not there (nor with .gz or .xz); PREFIX.{lang} must name a text file")
    with as_user_errors(path), path.open("rb") as stream:
        if not stream.read(1):
            raise UserError(f"{path} is empty; parallel text needs at least one line on each side")
    return path


def open_bytes(path: Path) -> BinaryIO:
    """The file's bytes, decompressed where its name says that it is compressed."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return path.open("rb")


def decode(path: Path, number: int, raw: bytes) -> str:
    """One checked line of text without its end.

    Raises:
        UserError: it is too long, not UTF-8, or holds a NUL.
    """
    if len(raw) > MAX_LINE_BYTES:
        raise UserError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; is this one sentence a line?")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1} (0x{raw[error.start]:02x})"
        raise UserError(f"{path}, line {number}: {where} is not valid UTF-8; convert the file first") from None
    if "\0" in text:
        raise UserError(f"{path}, line {number}: holds a NUL character; is this a text file?")
    return text.rstrip("\r\n")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, ended by line feeds only (a stray carriage return does not end one).

    Raises:
        UserError: the file cannot be read, is damaged, or a line is not clean text.
    """
    with as_user_errors(path), open_bytes(path) as stream:
        number = 0
        while raw := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            text = decode(path, number, raw)
            yield text.removeprefix(BOM) if number == 1 else text


@contextlib.contextmanager
def as_user_errors(path: Path) -> Iterator[None]:
    """Turn what goes wrong while ``path`` is read into one clear line."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is damaged or cut short: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The lines of both files, side by side.

    Raises:
        UserError: as `read_lines`; or the files differ in length, told with both counts at the end.
    """
    sides = read_lines(source), read_lines(target)
    number = 0
    for number, (left, right) in enumerate(zip_longest(*sides), start=1):
        if left is None or right is None:
            longer = number + sum(1 for _ in sides[0]) + sum(1 for _ in sides[1])
            counts = (longer, number - 1) if right is None else (number - 1, longer)
            raise UserError(
                f"{source} has {counts[0]:,} lines, {target} has {counts[1]:,}: the sides of a parallel text must be "
                "aligned line by line"
            )
        yield left, right
    if number == 0:
        raise UserError(f"{source} and {target} are empty; parallel text needs at least one line on each side")


def count_lines(path: Path) -> int:
    """The number of lines, without looking at them; the last may lack its line end."""
    count, last = 0, b"\n"
    with as_user_errors(path), open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            count += block.count(b"\n")
            last = block
    return count + (not last.endswith(b"\n"))


def chunks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """``items`` in runs of up to ``size``."""
    while run := list(islice(items, size)):
        yield run

"""Tests of reading parallel text: every kind of bad file is named in one line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.text import (
    MAX_LINE_BYTES,
    count_lines,
    existing_text,
    read_lines,
    read_pairs,
    side_path,
    text_pieces,
)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_plain_and_compressed_files_read_alike(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    write(tmp_path / f"a.en{suffix}", pack("\ufeffone\r\nzwei Bäume\nlast".encode()))
    path = side_path(tmp_path / "a", "en")
    assert list(read_lines(path)) == ["one", "zwei Bäume", "last"]
    assert count_lines(path) == 3


@given(
    st.lists(
        st.text(st.characters(blacklist_characters="\n\r\0\ufeff", blacklist_categories=["Cs"]))
    )
)
def test_lines_end_at_line_feeds_only(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.en"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines(path)) == lines
    assert count_lines(path) == len(lines)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """It can be read once, and every text is read several times."""
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(UserError, match=r"pipe\.tsv is a pipe: name a text file"):
        existing_text(tmp_path / "pipe.tsv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xe4d\n", r"line 2: byte 2 \(0xe4\) is not valid UTF-8"),
        (b"good\nzero\0\n", "line 2: holds a NUL character"),
        (b"a " * MAX_LINE_BYTES, "line 1: longer than 1,000,000 bytes"),
        (b"a\rb\rc", "line 1: lines end with carriage returns"),
        (b"line\r" * MAX_LINE_BYTES, "line 1: lines end with carriage returns"),
    ],
)
def test_bad_lines_are_told_with_their_number(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path / "a.en", content)
    other = write(tmp_path / "a.de", b"good\n" * max(1, content.count(b"\n")))
    for read in (
        lambda: read_lines(path),
        lambda: read_pairs((other, path)),
        lambda: read_pairs((path, path)),
    ):
        with pytest.raises(UserError, match=message) as caught:
            list(read())
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("part", [0.5, None])
def test_damaged_archives_are_told(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], part: float | None
) -> None:
    packed = pack(bytes(range(1, 120)) * 100)
    path = write(
        tmp_path / f"a.en{suffix}",
        packed[: int(len(packed) * part)] if part else b"no archive at all",
    )
    with pytest.raises(UserError, match="is damaged or cut short"):
        list(read_lines(path))
    with pytest.raises(UserError, match="is damaged or cut short"):
        count_lines(path)


@pytest.mark.parametrize(("english", "german"), [(5, 3), (3, 5), (1, 2)])
def test_misaligned_sides_are_told_with_both_counts(
    tmp_path: Path, english: int, german: int
) -> None:
    source = write(tmp_path / "a.en", b"line\n" * english)
    target = write(tmp_path / "a.de", b"line\n" * german)
    with pytest.raises(UserError, match=rf"a\.en has {english} lines, .*a\.de has {german}:"):
        list(read_pairs((source, target)))


@given(
    st.lists(
        st.text(st.characters(blacklist_characters="\n\r\0\ufeff\t", blacklist_categories=["Cs"])),
        min_size=1,
    )
)
def test_pairs_are_the_lines_side_by_side(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    expected = list(zip(lines, reversed(lines), strict=True))
    for side, name in enumerate(("a.en", "a.de")):
        text = "".join(f"{pair[side]}\r\n" for pair in expected)
        (folder / name).write_bytes(f"\ufeff{text}".removesuffix("\n").encode())
    assert list(read_pairs((folder / "a.en", folder / "a.de"))) == expected
    (folder / "both.tsv").write_bytes(
        "".join(f"{source}\t{target}\n" for source, target in expected).encode()
    )
    assert list(read_pairs((folder / "both.tsv",))) == expected


@pytest.mark.parametrize("line", ["only one", "one\ttwo\tthree"])
def test_a_table_has_two_columns(tmp_path: Path, line: str) -> None:
    table = write(tmp_path / "a.tsv", f"a\tb\nc\td\n{line}\n".encode())
    with pytest.raises(UserError, match=rf"a\.tsv, line 3: {line.count(chr(9)) + 1} columns"):
        list(read_pairs((table,)))


def test_an_empty_row_of_a_table_is_an_empty_pair(tmp_path: Path) -> None:
    table = write(tmp_path / "a.tsv", b"a\tb\n\nc\td\n")
    assert list(read_pairs((table,))) == [("a", "b"), ("", ""), ("c", "d")]


def test_zstd_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.en.zst", b"packed")
    with pytest.raises(UserError, match=r"a\.en\.zst is compressed with zstd: decompress it"):
        side_path(tmp_path / "a", "en")


@given(
    st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n"))),
    st.integers(1, 9),
)
def test_text_in_pieces_is_the_text_in_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "a"
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(text.encode())
    pieces = [piece.read() for piece in text_pieces(path, size)]
    assert "".join(pieces) == text
    assert all(piece.endswith("\n") for piece in pieces)

"""Reading text: one line names each kind of unusable file."""

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
from fairseq_mhe.prepare import text as texts
from fairseq_mhe.prepare.text import count_lines, read_lines, read_pairs, side_path

LINES = st.lists(
    st.text(st.characters(blacklist_characters="\n\r\0\ufeff\t", blacklist_categories=["Cs"])),
    min_size=1,
)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_plain_and_compressed_files_are_read_and_damaged_ones_refused(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack("\ufeffone\r\nzwei Bäume\nlast".encode())
    path = write(tmp_path / f"a.en{suffix}", packed)
    assert side_path(tmp_path / "a", "en") == path
    assert list(read_lines(path)) == ["one", "zwei Bäume", "last"]
    assert count_lines(path) == 3
    for damaged in (packed[: len(packed) // 2], b"no archive at all") if suffix else ():
        path.write_bytes(damaged)
        for read in (read_lines, lambda path: [count_lines(path)]):
            with pytest.raises(
                UserError, match=rf"cannot read .*a\.en{suffix}: .*; give another file$"
            ):
                list(read(path))


def test_a_pipe_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    """A pipe can be read only once, but a text is read several times."""
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(UserError, match=r"pipe\.tsv is not a file: name a text file"):
        texts.existing_text(tmp_path / "pipe.tsv")
    write(tmp_path / "a.en", b"")
    with pytest.raises(UserError, match=r"a\.en is empty"):
        side_path(tmp_path / "a", "en")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xe4d\n", r", line 2: byte 2 \(0xe4\) is not valid UTF-8"),
        (b"good\nzero\0\n", ", line 2: holds a NUL character"),
    ],
)
def test_messages_name_invalid_lines(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path / "a.en", content)
    other = write(tmp_path / "a.de", b"good\n" * max(1, content.count(b"\n")))
    with pytest.raises(UserError, match=rf"a\.en{message}"):
        list(read_pairs((other, path)))


@pytest.mark.parametrize(("english", "german"), [(5, 3), (3, 5)])
def test_messages_name_misaligned_sides(tmp_path: Path, english: int, german: int) -> None:
    source = write(tmp_path / "a.en", b"line\n" * english)
    target = write(tmp_path / "a.de", b"line\n" * german)
    with pytest.raises(UserError, match=rf"a\.en has {english} lines, .*a\.de has {german}:"):
        list(read_pairs((source, target)))


@given(LINES)
def test_pairs_are_the_lines_side_by_side(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    """Only line feeds end a line."""
    folder = tmp_path_factory.mktemp("pairs")
    expected = list(zip(lines, reversed(lines), strict=True))
    for side, name in enumerate(("a.en", "a.de")):
        text = "".join(f"{pair[side]}\r\n" for pair in expected)
        (folder / name).write_bytes(f"\ufeff{text}".removesuffix("\n").encode())
    assert list(read_pairs((folder / "a.en", folder / "a.de"))) == expected
    table = "".join(f"{source}\t{target}\n" for source, target in expected)
    write(folder / "both.tsv", table.encode())
    assert list(read_pairs((folder / "both.tsv",))) == expected


def test_a_byte_order_mark_within_a_file_is_no_text(tmp_path: Path) -> None:
    """Two files joined by cat; the first has no line feed at its end."""
    path = write(tmp_path / "a.en", "\ufeffone\n\ufefftwo\nthr\ufeffee\n".encode())
    assert list(read_lines(path)) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x28\xb5\x2f\xfd\x04\x00", "Zstandard"),
        (b"PK\x03\x04\xff", "zip"),
        (gzip.compress(b"text"), "gzip"),
        ("text".encode("utf-16"), "UTF-16"),
    ],
)
@pytest.mark.parametrize("name", ["a.en", "a.en.zst", "a"])
def test_a_file_of_another_kind_is_named(
    tmp_path: Path, content: bytes, kind: str, name: str
) -> None:
    write(tmp_path / name, content)
    with pytest.raises(UserError, match=rf"{name} is .*{kind}"):
        list(read_lines(side_path(tmp_path / "a", "en")))


@pytest.mark.parametrize(
    ("lines", "doubt"),
    [
        ("en\tde", "header"),
        ("Source\tTarget", "header"),
        ('a\tb\n"she said ""no"""\tc', "CSV"),
        ('"Yes."\t"Ja."', ""),
        ("the source\tdie Quelle", ""),
    ],
)
def test_a_header_and_the_quotes_of_csv_are_doubted(tmp_path: Path, lines: str, doubt: str) -> None:
    found = texts.doubts_of_table(write(tmp_path / "a.tsv", f"{lines}\n".encode()), ("en", "de"))
    assert doubt in found
    assert bool(doubt) == bool(found)


@pytest.mark.parametrize("line", ["only one", "one\ttwo\tthree"])
def test_a_table_has_two_columns(tmp_path: Path, line: str) -> None:
    table = write(tmp_path / "a.tsv", f"a\tb\n\n{line}\n".encode())
    with pytest.raises(UserError, match=rf"a\.tsv, line 3: {line.count(chr(9)) + 1} columns"):
        list(read_pairs((table,)))
    table.write_bytes(b"a\tb\n\nc\td\n")
    assert list(read_pairs((table,))) == [("a", "b"), ("", ""), ("c", "d")]


@given(LINES, st.integers(1, 9))
def test_blocks_are_the_text_in_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "a"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    blocks = list(map(texts.lines_of, texts.text_blocks(path, size)))
    assert [line for block in blocks for line in block] == lines
    longest = max(len(line.encode()) for line in lines)
    assert all(len("\n".join(block[:-1]).encode()) <= size + longest for block in blocks)

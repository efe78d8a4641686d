"""Reading text: every form of a file gives the same pairs; one line names an unusable file."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.prepare import text as texts
from fairseq_mhe.prepare.text import existing_text, read_pairs, side_path
from tests.fixtures.refusals import refuses

LINES = st.lists(
    st.text(st.characters(blacklist_characters="\n\r\0\ufeff\t", blacklist_categories=["Cs"])),
    min_size=1,
)
GOOD = b"good\nline\n"


def pairs_in(folder: Path) -> list[tuple[str, str]]:
    """Return the pairs of a.tsv, or else of a.en and a.de, which may be compressed."""
    table = folder / "a.tsv"
    if os.path.lexists(table):
        return list(read_pairs((existing_text(table),)))
    return list(read_pairs((side_path(folder / "a", "en"), side_path(folder / "a", "de"))))


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_plain_and_compressed_files_are_read_and_damaged_ones_refused(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    """The first file is two joined ones: only its first line ends in a line feed alone."""
    packed = pack("\ufeffone\n\ufeffzwei Bäume\r\nla\ufeffst".encode())
    path = tmp_path / f"a.en{suffix}"
    path.write_bytes(packed)
    (tmp_path / "a.de").write_bytes(b"1\n2\n3")
    assert pairs_in(tmp_path) == [("one", "1"), ("zwei Bäume", "2"), ("last", "3")]
    for damaged in (packed[: len(packed) // 2], b"no archive at all") if suffix else ():
        path.write_bytes(damaged)
        with refuses(path):
            pairs_in(tmp_path)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"a.en": b"good\nb\xe4d\n", "a.de": GOOD}, "a.en, line 2: byte 2 (0xe4)"),
        ({"a.de": b"good\nzero\0\n", "a.en": GOOD}, "a.de, line 2: "),
        ({"a.en": GOOD * 3, "a.de": GOOD}, "a.en has 6 lines, a.de has 2"),
        ({"a.en": GOOD, "a.de": GOOD * 3}, "a.de has 6 lines, a.en has 2"),
        ({"a.en": b"", "a.de": GOOD}, "a.en is empty"),
        ({"a.en": GOOD}, "a.de does not exist"),
        ({"a.tsv": b"a\tb\n\nonly one\n"}, "a.tsv, line 3: 1 columns"),
        ({"a.tsv": b"a\tb\n\none\ttwo\tthree\n"}, "a.tsv, line 3: 3 columns"),
        ({"a.en.zst": b"\x28\xb5\x2f\xfd\x04\x00"}, "a.en.zst is compressed by Zstandard"),
        ({"a.en": gzip.compress(b"text"), "a.de": GOOD}, "a.en is compressed by gzip"),
        ({"a.en": "text".encode("utf-16"), "a.de": GOOD}, "a.en is text in UTF-16"),
    ],
)
def test_a_bad_file_and_its_line_are_named(
    tmp_path: Path, files: dict[str, bytes], named: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with refuses(tmp_path, *named.split("is ")):
        pairs_in(tmp_path)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """A pipe can be read only once, but a text is read for its checksum, too."""
    os.mkfifo(tmp_path / "a.tsv")
    with refuses("a.tsv"):
        pairs_in(tmp_path)


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
    assert pairs_in(folder) == expected
    (folder / "a.tsv").write_text("".join(f"{one}\t{two}\n" for one, two in expected), newline="")
    blank = ("", "")  # a line without text
    assert pairs_in(folder) == [pair if "".join(pair).strip() else blank for pair in expected]


@pytest.mark.parametrize(
    ("pairs", "doubt"),
    [
        ([("en", "de")], "header"),
        ([("Source", "Target")], "header"),
        ([("a", "b"), ('"she said ""no"""', "c")], "CSV"),
        ([('"Yes."', '"Ja."')], ""),
        ([("the source", "die Quelle")], ""),
    ],
)
def test_a_header_and_the_quotes_of_csv_are_doubted(
    pairs: list[tuple[str, str]], doubt: str
) -> None:
    found = texts.doubts_of_table(pairs, ("en", "de"))
    assert doubt in found
    assert bool(doubt) == bool(found)

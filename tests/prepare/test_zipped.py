"""Texts in zip archives are read in place; damaged and encrypted archives are named."""

import gzip
import os
import zipfile
from pathlib import Path

import pytest

from fairseq_mhe.prepare.text import existing_text, read_lines, read_pairs, side_path
from fairseq_mhe.prepare.zipped import text_in
from tests.fixtures.refusals import refuses

LANGS = ("en", "de")
OPUS = {"README": b"OPUS", "Books.de-en.en": b"one\ntwo\n", "Books.de-en.de": b"eins\nzwei\n"}


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_zip_archive_of_opus_is_read_without_unpacking(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "de-en.txt.zip", OPUS)
    prefix = text_in(archive, LANGS)
    assert prefix == archive / "Books.de-en"
    paths = side_path(prefix, "en"), side_path(prefix, "de")
    assert list(read_pairs(paths)) == [("one", "eins"), ("two", "zwei")]
    assert os.listdir(tmp_path) == [archive.name]
    other = {"x/b.tsv": b"one\teins\n", "x/c.en.gz": gzip.compress(b"c")}
    table = zipped(tmp_path / "b.zip", other)
    assert list(read_pairs((text_in(table, LANGS),))) == [("one", "eins")]
    assert list(read_lines(side_path(table / "x" / "c", "en"))) == ["c"]


@pytest.mark.parametrize("members", [{"README": b"no text"}, {**OPUS, "b.tsv": b"a\tb\n"}])
def test_an_archive_without_one_text_is_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    archive = zipped(tmp_path / "a.zip", members)
    with refuses(archive):
        text_in(archive, LANGS)
    with refuses("a.zip/none.tsv"):
        existing_text(archive / "none.tsv")


def test_damaged_and_encrypted_zip_archives_are_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a.tsv": b"one\teins\n" * 999})
    content = archive.read_bytes()
    encrypted = bytearray(content)
    encrypted[6] |= 1  # the flag of encryption, before the file and in the directory
    encrypted[content.rindex(b"PK\x01\x02") + 8] |= 1
    for damaged in (content[:-9], content[:40] + bytes(9) + content[49:], encrypted, b"PK\x03\x04"):
        archive.write_bytes(damaged)
        with refuses("cannot read", archive):
            list(read_lines(text_in(archive, LANGS)))

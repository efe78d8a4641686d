"""Archives that lie, swell or lead out: refused in one line, soon, and nothing of them stays."""

from __future__ import annotations

import gzip
import resource
import tarfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.archive import extract

TEXT = b"one\ntwo\n"
GB = 10**9


def member(name: str, size: int = len(TEXT), kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header that says so."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def file(name: str) -> bytes:
    return member(name) + TEXT.ljust(512, b"\0")


def sparse(name: str) -> bytes:
    """A file of a terabyte with nothing in it but a hole, as GNU tar writes it."""
    header = bytearray(member(name, 0, tarfile.GNUTYPE_SPARSE))
    header[483:495] = tarfile.itn(10**12, 12, tarfile.GNU_FORMAT)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def write(path: Path, *parts: bytes) -> Path:
    path.write_bytes(gzip.compress(b"".join(parts) + bytes(1024), mtime=0))
    return path


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


BAD = {
    "leads out": file("../evil"),
    "link": member("b.de", 0, tarfile.SYMTYPE),
    "hole": sparse("b.de"),
    "hole that is not needed": sparse("c.fr"),
    "negative": member("b.de", -512),
    "many": member("c.fr", 0) * 25_000,
    "missing": b"",
    "cut": member("b.de", 5000),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_nothing_stays_behind_after_a_refusal(tmp_path: Path, bad: bytes) -> None:
    """The first of the two members is whole, and would be there already."""
    archive = write(tmp_path / "a.tgz", file("a.en"), bad)
    with pytest.raises(UserError) as refused:
        extract(archive, ["a.en", "b.de"], tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert files_in(tmp_path) == [archive]


@pytest.mark.parametrize(
    ("name", "kind"), [("b.de", tarfile.REGTYPE), ("././@LongLink", tarfile.GNUTYPE_LONGNAME)]
)
def test_a_bomb_is_not_unpacked(tmp_path: Path, name: str, kind: bytes) -> None:
    """A gigabyte of nothing, packed to a megabyte: the same piece of it again and again."""
    archive = tmp_path / "a.tgz"
    headers = file("a.en") + member(name, GB, kind)
    archive.write_bytes(gzip.compress(headers) + gzip.compress(bytes(10**7)) * (GB // 10**7))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"is refused|a header says 1,000,000,000 bytes"):
        extract(archive, ["a.en", "b.de"], tmp_path / "out")
    assert files_in(tmp_path) == [archive]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


WHOLE = gzip.compress(file("a.en") + file("b.de") + bytes(1024), mtime=0)
PLAIN = gzip.decompress(WHOLE)


@given(
    st.sampled_from([WHOLE, PLAIN]),
    st.lists(st.tuples(st.integers(0, len(PLAIN) - 1), st.binary(max_size=12)), max_size=4),
    st.integers(0, len(PLAIN)),
)
@example(PLAIN, [(124, b"\xff" * 12)], len(PLAIN))
@example(PLAIN, [(156, b"x")], len(PLAIN))
@example(WHOLE, [], 60)
@settings(max_examples=150, deadline=None)
def test_a_changed_archive_is_unpacked_whole_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory,
    packed: bytes,
    changes: list[tuple[int, bytes]],
    length: int,
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    content = bytearray(packed)
    for place, new in changes:
        place %= len(packed)
        content[place : place + len(new)] = new
    archive = folder / "a.tgz"
    archive.write_bytes(content[:length])
    told = ""
    try:
        extract(archive, ["a.en", "b.de"], folder / "out")
    except UserError as error:
        told = str(error)
    assert "\n" not in told
    assert len(files_in(folder)) == (1 if told else 3)

"""Unpacking: what is needed and nothing else; wrong and damaged archives are refused."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.archive import extract
from tests.fixtures.miniature import write_archive

LONG = "".join(f"{number**5}\n" for number in range(5000))


def write(path: Path, members: dict[str, str]) -> Path:
    if path.suffix == ".tgz":
        return write_archive(path, members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_only_what_is_needed_is_unpacked(tmp_path: Path, name: str) -> None:
    members = {
        "training/a.en": "one\n",
        "../evil": "evil\n",
        "/evil": "evil\n",
        "b.de": "zwei\n",
    }
    archive = write(tmp_path / name, members)
    extract(archive, ["training/a.en", "b.de"], tmp_path / "out")
    assert files_in(tmp_path) == {name, "out/training/a.en", "out/b.de"}
    assert (tmp_path / "out" / "b.de").read_text() == "zwei\n"


def test_a_leading_dot_is_no_other_name(tmp_path: Path) -> None:
    extract(write(tmp_path / "a.tgz", {"./b.de": "zwei\n"}), ["b.de"], tmp_path / "out")
    assert files_in(tmp_path / "out") == {"b.de"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.DIRTYPE])
def test_a_link_or_a_folder_is_no_member(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("a.en")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(UserError, match=r"has no a\.en; is it the right archive"):
        extract(tmp_path / "a.tar", ["a.en"], tmp_path / "out")


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_missing_members_and_damaged_archives_leave_nothing(tmp_path: Path, name: str) -> None:
    archive = write(tmp_path / name, {"b.de": "zwei\n", "a.en": LONG})
    with pytest.raises(UserError, match=r"has no training/a\.de and no x\.de; is it the right"):
        extract(archive, ["b.de", "x.de", "training/a.de"], tmp_path / "out")
    content = archive.read_bytes()
    for size in (0, len(content) // 2):
        archive.write_bytes(content[:size])
        with pytest.raises(UserError, match=rf"{name} is damaged: .* delete it"):
            extract(archive, ["b.de", "a.en"], tmp_path / "out")
    assert files_in(tmp_path) == {name}


def test_the_checksum_at_the_end_of_a_packed_archive_is_read(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tgz", {"a": "text\n" * 10_000})
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    with pytest.raises(UserError, match="is damaged"):
        extract(archive, ["a"], tmp_path / "out")

"""Unpacking: what is needed and nothing else; unsafe, damaged, wrong archives are refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.archive import extract
from tests.fixtures.miniature import write_archive


def test_only_what_is_needed_is_unpacked(tmp_path: Path) -> None:
    archive = write_archive(
        tmp_path / "a.tgz", {"training/a.en": "one\n", "training/a.fr": "un\n", "./b.de": "zwei\n"}
    )
    extract(archive, ["training/a.en", "b.de"], tmp_path / "out")
    files = {
        str(path.relative_to(tmp_path / "out"))
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert files == {"training/a.en", "b.de"}
    assert (tmp_path / "out" / "b.de").read_text() == "zwei\n"


@pytest.mark.parametrize("name", ["../evil", "training/../../evil", "/evil"])
def test_a_path_that_escapes_is_refused(tmp_path: Path, name: str) -> None:
    archive = write_archive(tmp_path / "a.tgz", {"a.en": "one\n", name: "evil\n"})
    with pytest.raises(UserError, match=r"a\.tgz is refused, .*evil"):
        extract(archive, ["a.en"], tmp_path / "inner" / "out")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("kind", "target"), [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.CHRTYPE, "")]
)
def test_links_out_and_devices_are_refused(tmp_path: Path, kind: bytes, target: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("a.en")
        info.type, info.linkname = kind, target
        tar.addfile(info)
    with pytest.raises(UserError, match="is refused"):
        extract(tmp_path / "a.tar", ["a.en"], tmp_path / "out")


def test_a_link_that_is_not_needed_is_left(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("latest")
        link.type, link.linkname = tarfile.SYMTYPE, "a.en"
        tar.addfile(link)
        file = tarfile.TarInfo("a.en")
        file.size = 4
        tar.addfile(file, io.BytesIO(b"one\n"))
    extract(tmp_path / "a.tar", ["a.en"], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.en"]


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tgz", {"training/a.en": "one\n"})
    with pytest.raises(
        UserError, match=r"a\.tgz has no training/a\.de and no training/b\.de; is it the right"
    ):
        extract(archive, ["training/a.en", "training/b.de", "training/a.de"], tmp_path / "out")


def test_a_folder_is_no_member(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("a.en")
        info.type = tarfile.DIRTYPE
        tar.addfile(info, io.BytesIO())
    with pytest.raises(UserError, match=r"has no a\.en"):
        extract(tmp_path / "a.tar", ["a.en"], tmp_path / "out")


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_damaged_archive_is_told(tmp_path: Path, share: float) -> None:
    archive = write_archive(
        tmp_path / "a.tgz", {"a.en": "".join(f"{number**5}\n" for number in range(5000))}
    )
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=r"a\.tgz is damaged"):
        extract(archive, ["a.en"], tmp_path / "out")

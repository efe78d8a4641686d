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


def write_zip(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_only_what_is_needed_is_unpacked(tmp_path: Path, name: str) -> None:
    members = {"training/a.en": "one\n", "../evil": "evil\n", "/evil": "evil\n", "b.de": "zwei\n"}
    write = write_zip if name.endswith("zip") else write_archive
    archive = write(tmp_path / name, members)
    extract(archive, ["training/a.en", "b.de"], tmp_path / "out")
    assert files_in(tmp_path) == {name, "out/training/a.en", "out/b.de"}
    assert (tmp_path / "out" / "b.de").read_text() == "zwei\n"


def test_a_leading_dot_is_no_other_name(tmp_path: Path) -> None:
    extract(write_archive(tmp_path / "a.tgz", {"./b.de": "zwei\n"}), ["b.de"], tmp_path / "out")
    assert files_in(tmp_path / "out") == {"b.de"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_a_link_a_device_or_a_folder_is_no_member(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("a.en")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(UserError, match=r"has no a\.en; is it the right archive"):
        extract(tmp_path / "a.tar", ["a.en"], tmp_path / "out")


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_missing_members_are_named_and_nothing_stays(tmp_path: Path, name: str) -> None:
    write = write_zip if name.endswith("zip") else write_archive
    archive = write(tmp_path / name, {"training/a.en": "one\n"})
    with pytest.raises(
        UserError, match=r"has no training/a\.de and no training/b\.de; is it the right"
    ):
        extract(archive, ["training/a.en", "training/b.de", "training/a.de"], tmp_path / "out")
    assert files_in(tmp_path) == {name}


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_damaged_archive_is_refused(tmp_path: Path, name: str, share: float) -> None:
    write = write_zip if name.endswith("zip") else write_archive
    archive = write(tmp_path / name, {"b.de": "zwei\n", "a.en": LONG})
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=rf"{name} is damaged: .* delete it") as refused:
        extract(archive, ["b.de", "a.en"], tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert files_in(tmp_path) == {name}

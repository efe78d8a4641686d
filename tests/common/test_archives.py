"""Only regular files are unpacked, inside the folder; damaged and wrong archives are named."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from fairseq_mhe.common.archives import extract
from fairseq_mhe.common.errors import UserError
from tests.fixtures.miniature import write_archive
from tests.fixtures.refusals import refuses

LONG = "".join(f"{number**5}\n" for number in range(5000))
PACKERS = {".tgz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def write(path: Path, members: dict[str, str]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in members.items():
                archive.writestr(name, text)
        return path
    tar = gzip.decompress(write_archive(path, members).read_bytes())
    path.write_bytes(PACKERS[path.suffix](tar))
    return path


def names(folder: Path) -> set[str]:
    """Return the paths of all files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_only_the_named_members_are_unpacked(tmp_path: Path, name: str) -> None:
    members = dict.fromkeys(["training/a.en", "../evil", "/evil"], "one\n")
    members["./b.de" if name == "a.tgz" else "b.de"] = "zwei\n"
    archive = write(tmp_path / name, members)
    extract(archive, tmp_path / "out", ["training/a.en", "b.de"])
    assert names(tmp_path) == {name, "out/training/a.en", "out/b.de"}
    assert (tmp_path / "out" / "b.de").read_text() == "zwei\n"
    assert (tmp_path / "out" / "b.de").stat().st_mode & 0o6000 == 0


@pytest.mark.parametrize("name", ["a.tgz", "a.zip", "a.tar.xz", "a.tar.bz2"])
def test_missing_members_and_damaged_archives_are_refused(tmp_path: Path, name: str) -> None:
    archive = write(tmp_path / name, {"b.de": "zwei\n", "a.en": LONG})
    with refuses(archive, "training/a.de", "x.de"):
        extract(archive, tmp_path / "out", ["b.de", "x.de", "training/a.de"])
    content = archive.read_bytes()
    middle = len(content) // 2
    damaged = [b"", b"<html>", content[:middle]]
    damaged.append(content[:middle] + bytes(40) + content[middle + 40 :])
    if name == "a.tgz":  # with a wrong checksum at the end of the file
        damaged.append(content[:-8] + bytes(4) + content[-4:])
    for some in damaged:
        archive.write_bytes(some)
        with refuses(archive, "damaged"):
            extract(archive, tmp_path / "out", ["b.de", "a.en"])


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


LINK = member("x/link", tarfile.SYMTYPE, "../..")


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("x/../../outside")],
        [member("OUTSIDE")],
        [LINK, member("x/link/outside")],
        [member("x/link", tarfile.SYMTYPE, "OUTSIDE"), member("x/link")],
        [member("x/link", tarfile.LNKTYPE, "../outside"), member("x/link")],
        [member("x/pipe", tarfile.FIFOTYPE)],
    ],
)
def test_nothing_is_written_outside_the_folder(
    members: list[tarfile.TarInfo], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    archive = tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for info in members:
            info.name = info.name.replace("OUTSIDE", str(outside))
            info.linkname = info.linkname.replace("OUTSIDE", str(outside))
            info.size = int(info.isreg())
            tar.addfile(info, io.BytesIO(b"x"))
    with refuses(archive, "its member"):
        extract(archive, tmp_path / "out")
    wanted = str(PurePosixPath(members[0].name))  # the same member, asked for by its name
    with contextlib.suppress(UserError):
        extract(archive, tmp_path / "out", [wanted])
    assert outside.read_text() == "mine"
    assert names(tmp_path) - {"out/x/link"} == {archive.name, "outside"}

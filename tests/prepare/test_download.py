"""Downloads from a server that breaks off, lies or refuses; wrong and damaged archives."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.download import BLOCK, RemoteFile, download, extract
from tests.fixtures.miniature import Server, write_archive

CONTENT = bytes(range(256)) * 2000


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairseq_mhe.prepare.download.PAUSE", 0.0)


@pytest.fixture
def file(server: Server, tmp_path: Path) -> RemoteFile:
    path = tmp_path / "served" / "file.tgz"
    path.write_bytes(CONTENT)
    return RemoteFile(f"{server.url}/file.tgz", sha256(path))


def obtain(file: RemoteFile, folder: Path) -> bytes:
    return download([file], folder)[0].read_bytes()


def names(folder: Path) -> set[str]:
    """Return the paths of all files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_file_is_downloaded_once_from_its_url_or_a_mirror(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    elsewhere = replace(file, url="http://127.0.0.1:9/some/where/file.tgz")
    for _ in range(2):
        download([elsewhere], tmp_path / "here", f"{server.url}/")
        assert obtain(file, tmp_path / "here") == CONTENT
    assert names(tmp_path / "here") == {"file.tgz"}
    assert len(server.requests) == 1


def test_a_broken_download_resumes_after_the_last_whole_block(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    server.break_after = [BLOCK + 4000, 2 * BLOCK + 4000]
    assert obtain(file, tmp_path) == CONTENT
    expected = [None, f"bytes={BLOCK}-", f"bytes={3 * BLOCK}-"]
    assert [byte_range for _, byte_range in server.requests] == expected


def test_a_server_without_ranges_sends_the_whole_file_again(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    server.ranges, server.break_after = False, [BLOCK + 4000]
    assert obtain(file, tmp_path) == CONTENT
    assert [byte_range for _, byte_range in server.requests] == [None, f"bytes={BLOCK}-"]


@pytest.mark.parametrize("status", [408, 429, 503])
def test_requests_to_a_busy_server_are_retried(
    file: RemoteFile, server: Server, tmp_path: Path, status: int
) -> None:
    server.busy = [status, status]
    assert obtain(file, tmp_path) == CONTENT
    assert len(server.requests) == 3


def test_an_archive_with_a_declared_encoding_stays_compressed(
    server: Server, tmp_path: Path
) -> None:
    """Some servers declare the gzip of .tgz as an encoding, which requests would undo."""
    packed = gzip.compress(CONTENT, compresslevel=0)
    (tmp_path / "served" / "packed.tgz").write_bytes(packed)
    server.encoding, server.break_after = "x-gzip", [BLOCK + 4000]
    assert obtain(RemoteFile(f"{server.url}/packed.tgz"), tmp_path) == packed


def test_a_complete_part_is_not_downloaded_again(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "file.tgz.part").write_bytes(CONTENT)
    assert obtain(file, tmp_path) == CONTENT
    assert server.requests == [("/file.tgz", f"bytes={len(CONTENT)}-")]


def test_another_range_is_not_appended(file: RemoteFile, server: Server, tmp_path: Path) -> None:
    """The whole file is asked for instead; if that answer is a part, too, the command ends."""
    server.break_after = [BLOCK + 4000]
    server.headers = {"Content-Range": f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}"}
    assert obtain(file, tmp_path) == CONTENT
    assert [byte_range for _, byte_range in server.requests] == [None, f"bytes={BLOCK}-", None]
    server.busy = [206]
    with pytest.raises(UserError, match=r"file\.tgz: the server sent another part"):
        obtain(replace(file, sha256=None), tmp_path / "again")


def test_a_part_longer_than_the_file_is_replaced(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "file.tgz.part").write_bytes(CONTENT + b"more")
    assert obtain(replace(file, sha256=None), tmp_path) == CONTENT


def test_status_416_for_the_whole_file_is_an_error(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    server.status = 416
    with pytest.raises(UserError, match=r"cannot download http://127.*file\.tgz: 416"):
        obtain(replace(file, sha256=None), tmp_path)
    assert not (tmp_path / "file.tgz").exists()


def test_a_length_that_is_no_number_is_an_error(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    server.headers = {"Content-Length": "abc"}
    with pytest.raises(UserError, match=r"file\.tgz: the server says that the file has 'abc'"):
        obtain(file, tmp_path)


@pytest.mark.parametrize("pause", ["86400", "Fri, 31 Dec 2100 23:59:59 GMT", "soon"])
def test_a_pause_of_hours_is_not_obeyed(
    file: RemoteFile, server: Server, tmp_path: Path, pause: str
) -> None:
    server.busy, server.headers = [503], {"Retry-After": pause}
    with pytest.raises(UserError, match=rf"http://127.*file\.tgz: .*{pause}"):
        obtain(file, tmp_path)
    assert len(server.requests) == 1


def test_a_wrong_checksum_deletes_downloads_only(file: RemoteFile, tmp_path: Path) -> None:
    (tmp_path / "file.tgz").write_bytes(CONTENT)  # the user's
    wrong = replace(file, sha256="0" * 64)
    message = r"file\.tgz has the SHA-256 .* instead of 0000.*; "
    with pytest.raises(UserError, match=f"{message}the file from http.* was deleted"):
        obtain(wrong, tmp_path / "here")
    assert not names(tmp_path / "here")
    with pytest.raises(UserError, match=f"{message}delete it"):
        obtain(wrong, tmp_path)
    assert (tmp_path / "file.tgz").read_bytes() == CONTENT


def test_status_404_is_not_retried(file: RemoteFile, server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(UserError, match=r"cannot download http://127.*file\.tgz: 404 .*--mirror"):
        obtain(file, tmp_path)
    assert len(server.requests) == 1


LONG = "".join(f"{number**5}\n" for number in range(5000))


def write(path: Path, members: dict[str, str]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in members.items():
                archive.writestr(name, text)
        return path
    tar = gzip.decompress(write_archive(path, members).read_bytes())
    packers = {".tgz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    path.write_bytes(packers[path.suffix](tar))
    return path


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_only_the_named_members_are_unpacked(tmp_path: Path, name: str) -> None:
    members = dict.fromkeys(["training/a.en", "../evil", "/evil"], "one\n")
    members["./b.de" if name == "a.tgz" else "b.de"] = "zwei\n"
    archive = write(tmp_path / name, members)
    extract(archive, ["training/a.en", "b.de"], tmp_path / "out")
    assert names(tmp_path) == {name, "out/training/a.en", "out/b.de"}
    assert (tmp_path / "out" / "b.de").read_text() == "zwei\n"
    assert (tmp_path / "out" / "b.de").stat().st_mode & 0o6000 == 0


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.DIRTYPE])
def test_a_link_or_a_folder_is_not_unpacked_as_a_member(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("a.en")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(UserError, match=r"has no a\.en; is it the right archive"):
        extract(tmp_path / "a.tar", ["a.en"], tmp_path / "out")


@pytest.mark.parametrize("name", ["a.tgz", "a.zip", "a.tar.xz", "a.tar.bz2"])
def test_missing_members_and_damaged_archives_are_refused(tmp_path: Path, name: str) -> None:
    archive = write(tmp_path / name, {"b.de": "zwei\n", "a.en": LONG})
    with pytest.raises(UserError, match=r"has no training/a\.de and no x\.de; is it the right"):
        extract(archive, ["b.de", "x.de", "training/a.de"], tmp_path / "out")
    content = archive.read_bytes()
    damaged = [b"", content[: len(content) // 2]]
    middle = len(content) // 2
    damaged.append(content[:middle] + bytes(40) + content[middle + 40 :])
    if name == "a.tgz":  # with a wrong checksum at the end of the file
        damaged.append(content[:-8] + bytes(4) + content[-4:])
    for some in damaged:
        archive.write_bytes(some)
        with pytest.raises(UserError, match=rf"{name} is damaged: .* delete it"):
            extract(archive, ["b.de", "a.en"], tmp_path / "out")


def test_an_encrypted_archive_is_called_so(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", {"a.en": LONG})
    content = bytearray(archive.read_bytes())
    content[6] |= 1  # the flag of encryption, before the file and in the directory
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.zip cannot be unpacked: .* encrypted"):
        extract(archive, ["a.en"], tmp_path / "out")

"""Downloads from a server that breaks off, has no ranges, is busy or refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.download import BLOCK, RemoteFile, download
from tests.fixtures.miniature import Server
from tests.fixtures.refusals import refuses

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


def test_a_file_is_downloaded_once_from_its_url_or_a_mirror(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    elsewhere = replace(file, url="http://127.0.0.1:9/some/where/file.tgz")
    for _ in range(2):
        download([elsewhere], tmp_path / "here", f"{server.url}/")
        assert obtain(file, tmp_path / "here") == CONTENT
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["file.tgz"]
    assert len(server.requests) == 1


def test_a_broken_download_resumes_after_the_last_whole_block(
    file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    """The archive's gzip is no encoding that is undone, whatever the server says."""
    server.encoding, server.break_after = "x-gzip", [BLOCK + 4000, 2 * BLOCK + 4000]
    assert obtain(file, tmp_path) == CONTENT
    expected = [None, f"bytes={BLOCK}-", f"bytes={3 * BLOCK}-"]
    assert [byte_range for _, byte_range in server.requests] == expected


@pytest.mark.parametrize("faults", [{"ranges": False}, {"headers": {"Content-Range": "bytes 5-9"}}])
def test_a_rest_that_the_server_does_not_send_is_downloaded_whole(
    faults: dict[str, object], file: RemoteFile, server: Server, tmp_path: Path
) -> None:
    """The server has no ranges, or sends another one."""
    server.break_after = [BLOCK + 4000]
    vars(server).update(faults)
    assert obtain(file, tmp_path) == CONTENT
    assert server.requests[1] == ("/file.tgz", f"bytes={BLOCK}-")


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(
    file: RemoteFile, server: Server, tmp_path: Path, status: int
) -> None:
    """A pause of hours that the server asks for is not obeyed."""
    server.busy, server.headers = [status, status], {"Retry-After": "86400"}
    assert obtain(file, tmp_path) == CONTENT
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [404, 416])
def test_a_refusal_is_not_retried(
    file: RemoteFile, server: Server, tmp_path: Path, status: int
) -> None:
    server.status = status
    with refuses(file.url, status, "--mirror"):
        obtain(file, tmp_path)
    assert len(server.requests) == 1
    assert not (tmp_path / "file.tgz").exists()


def test_a_wrong_checksum_deletes_downloads_only(file: RemoteFile, tmp_path: Path) -> None:
    (tmp_path / "file.tgz").write_bytes(CONTENT)  # the user's
    wrong = replace(file, sha256="0" * 64)
    with refuses("file.tgz", "SHA-256", "was deleted"):
        obtain(wrong, tmp_path / "here")
    assert not list((tmp_path / "here").iterdir())
    with refuses(tmp_path / "file.tgz", "SHA-256"):
        obtain(wrong, tmp_path)
    assert (tmp_path / "file.tgz").read_bytes() == CONTENT

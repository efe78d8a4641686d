"""Download published files, with resume and checksums, and extract members of archives."""

import gzip
import lzma
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.common.progress import Board

RETRIES = 4  # of a request that fails before its first byte
PAUSE = 2.0  # seconds before the second retry; doubled before each further retry
LONGEST_PAUSE = (
    60.0  # seconds that a busy server may ask for; a longer pause ends the command
)
TIMEOUT = 60.0  # seconds without a byte
BLOCK = 1 << 16  # bytes written at a time; a broken connection loses at most one block
MB = 10**6
#: Status codes of a busy server, which may ask for a pause by the header Retry-After.
_BUSY = (408, 429, 500, 502, 503, 504)
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,  # bzip2's, without a number
)


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network, and its SHA-256 if that is known."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The file's name, in the local folder and on a mirror."""
        return self.url.rpartition("/")[2]


def download(
    files: Sequence[RemoteFile], folder: Path, mirror: str | None = None
) -> list[Path]:
    """Download missing files into ``folder``, verify all, return paths; UserError on failure."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        path = folder / file.name
        advice = "delete it to download it again, or put the right file there"
        missing = not path.exists()
        if missing:
            url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
            _download(url, path)
            advice = f"the file from {url} was deleted; try again, or another --mirror"
        if file.sha256 and file.sha256 != (checksum := sha256(path)):
            if missing:
                path.unlink()
            problem = f"has the SHA-256 {checksum} instead of {file.sha256}"
            raise UserError(f"{path} {problem}; {advice}")
    return [folder / file.name for file in files]


class _Retry(Retry):
    """urllib3's retries, but for a server that asks for a pause of hours."""

    def get_retry_after(self, response: Any) -> float | None:
        seconds = super().get_retry_after(response)
        if seconds is not None and seconds > LONGEST_PAUSE:
            pause = response.headers["Retry-After"]
            raise requests.RequestException(
                f"the server is busy and asks for a pause (Retry-After: {pause})"
            )
        return seconds


class _UnusableAnswer(requests.RequestException):
    """The server's answer cannot be the rest of the file."""


def _download(url: str, path: Path) -> None:
    """Download to PATH.part, resuming as long as more bytes arrive; then rename it to ``path``."""
    part = path.with_name(f"{path.name}.part")
    part.touch()
    retries = _Retry(
        RETRIES, backoff_factor=PAUSE, status_forcelist=_BUSY, raise_on_status=False
    )
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        while True:
            size = part.stat().st_size
            try:
                _resume(session, url, part)
                break
            except _UnusableAnswer as error:
                if not size:  # the whole file was asked for
                    raise UserError(
                        f"cannot download {url}: {error}; use --mirror"
                    ) from error
                part.write_bytes(b"")
            except requests.RequestException as error:
                if part.stat().st_size == size:  # no progress
                    raise UserError(
                        f"cannot download {url}: {error}; try again, which resumes, use --mirror, "
                        f"or put the file into {path.parent}"
                    ) from error
    part.rename(path)


def _resume(session: requests.Session, url: str, part: Path) -> None:
    """Download the rest of ``part``; raises RequestException if the connection breaks."""
    size = part.stat().st_size
    headers = {"Accept-Encoding": "identity"}
    if size:
        headers["Range"] = f"bytes={size}-"
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if size and _is_complete(response, size):
            return
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            size = 0  # the server sends the whole file
        elif not _begins_at(response, size):
            raise _UnusableAnswer(
                "the server sent another part of the file than it was asked for"
            )
        rest = response.headers.get("Content-Length", "")
        if not rest.isdecimal() and rest:
            raise _UnusableAnswer(f"the server says that the file has {rest!r} bytes")
        total = size + int(rest) if rest else None
        # Some servers call .gz an encoding despite "identity"; requests would decompress it.
        response.raw.headers.pop("Content-Encoding", None)
        with Board("MB") as board, part.open("ab" if size else "wb") as stream:
            for block in response.iter_content(BLOCK):
                stream.write(block)
                size += len(block)
                if total is not None:
                    board.update(part.stem, size // MB, max(1, total // MB))


def _is_complete(response: requests.Response, size: int) -> bool:
    """Whether the server has no byte after the first ``size``; raises if it has fewer."""
    if response.status_code != requests.codes.requested_range_not_satisfiable:
        return False
    if response.headers.get("Content-Range") == f"bytes */{size}":
        return True
    raise _UnusableAnswer("the server's file is shorter than the part that is here")


def _begins_at(response: requests.Response, size: int) -> bool:
    """Whether a partial answer begins at byte ``size``."""
    return response.headers.get("Content-Range", "").startswith(f"bytes {size}-")


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack files of a zip or tar; UserError if the archive is damaged or lacks one of them."""
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped:
                for name in set(members).intersection(zipped.namelist()):
                    zipped.extract(name, out)
        else:
            with tarfile.open(archive) as packed:
                # The data filter is missing in Python before 3.11.4.
                packed.extraction_filter = getattr(tarfile, "data_filter", None)
                for member in packed:
                    if member.isfile() and posixpath.normpath(member.name) in members:
                        member.mode = 0o644  # not set-user-ID, if there is no filter
                        packed.extract(member, out)
                # Read to the end of the file, where gzip stores the checksum of the whole.
                while packed.fileobj and packed.fileobj.read(1 << 20):
                    pass
    except _DAMAGED as error:
        if getattr(error, "errno", None):
            raise  # of the disk
        advice = "delete it to download it again"
        raise UserError(f"{archive} is damaged: {error}; {advice}") from error
    except (
        RuntimeError
    ) as error:  # zipfile's, also for a compression that it does not know
        raise UserError(
            f"{archive} cannot be unpacked: {error}; unpack it first"
        ) from error
    missing = sorted(name for name in members if not (out / name).is_file())
    if missing:
        names = " and no ".join(missing)
        raise UserError(f"{archive} has no {names}; is it the right archive?")

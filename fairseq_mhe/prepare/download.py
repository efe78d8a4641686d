"""Download published files, with resume and checksums, and extract members of archives."""

import gzip
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.common.progress import Board

RETRIES = 4  # of a request that fails before its first byte
PAUSE = 2.0  # seconds before the second retry; doubled before each further retry
TIMEOUT = 60.0  # seconds without a byte
BLOCK = 1 << 16  # bytes written at a time; a broken connection loses at most one block
MB = 10**6
#: Status codes of a busy server, which may ask for a pause by the header Retry-After.
_BUSY = (408, 429, 500, 502, 503, 504)
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, EOFError, zlib.error)


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


def _download(url: str, path: Path) -> None:
    """Download to PATH.part, resuming as long as more bytes arrive; then rename it to ``path``."""
    part = path.with_name(f"{path.name}.part")
    part.touch()
    retries = Retry(
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
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            return  # the file has no more bytes
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            size = 0  # the server sends the whole file
        rest = response.headers.get("Content-Length")
        total = size + int(rest) if rest else None
        # Some servers call .gz an encoding despite "identity"; requests would decompress it.
        response.raw.headers.pop("Content-Encoding", None)
        with Board("MB") as board, part.open("ab" if size else "wb") as stream:
            for block in response.iter_content(BLOCK):
                stream.write(block)
                size += len(block)
                if total is not None:
                    board.update(part.stem, size // MB, max(1, total // MB))


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
        advice = "delete it to download it again"
        raise UserError(f"{archive} is damaged: {error}; {advice}") from error
    missing = sorted(name for name in members if not (out / name).is_file())
    if missing:
        names = " and no ".join(missing)
        raise UserError(f"{archive} has no {names}; is it the right archive?")

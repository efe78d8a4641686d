"""Download published files, with resume and checksums."""

from collections.abc import Sequence
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
#: Status codes of a busy server.
_BUSY = (408, 429, 500, 502, 503, 504)
#: Status codes for a part that is as long as the file or longer, and for another part of the file.
_NO_REST = (416, 206)


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
        RETRIES,
        backoff_factor=PAUSE,
        status_forcelist=_BUSY,
        raise_on_status=False,
        respect_retry_after_header=False,  # a server may ask for a pause of hours
    )
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        while True:
            size = part.stat().st_size
            try:
                if _resume(session, url, part):
                    break
            except requests.RequestException as error:
                if part.stat().st_size == size:  # no progress
                    raise UserError(
                        f"cannot download {url}: {error}; try again, which resumes, use --mirror, "
                        f"or put the file into {path.parent}"
                    ) from error
    part.rename(path)


def _resume(session: requests.Session, url: str, part: Path) -> bool:
    """Download the rest of ``part``; return False, and empty it, if the server has no such rest.

    Raises RequestException if the connection breaks.
    """
    size = part.stat().st_size
    headers = {"Accept-Encoding": "identity"}
    if size:
        headers["Range"] = f"bytes={size}-"
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        begin = response.headers.get("Content-Range", "")
        is_rest = size and begin.startswith(f"bytes {size}-")
        if size and not is_rest and response.status_code in _NO_REST:
            part.write_bytes(b"")
            return False
        response.raise_for_status()
        if not is_rest:
            size = 0  # the server sends the whole file
        # Some servers call .gz an encoding despite "identity"; requests would decompress it.
        response.raw.headers.pop("Content-Encoding", None)
        total = size + (response.raw.length_remaining or 0)
        with Board("MB") as board, part.open("ab" if size else "wb") as stream:
            for block in response.iter_content(BLOCK):
                stream.write(block)
                size += len(block)
                if total:
                    board.update(part.stem, size // MB, max(1, total // MB))
    return True

"""Files from the network: resumed where they broke off, used only if their SHA-256 is right."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_room, sha256
from fairseq_mhe.common.steps import locked
from fairseq_mhe.prepare.progress import Report

ATTEMPTS = 5  # without a single byte in between
PAUSE = 2.0  # seconds before the second attempt, and twice as many before each further one
TIMEOUT = 60.0  # seconds without a byte
BLOCK = 1 << 16  # bytes; what a broken connection costs at most
MB = 10**6
#: Answers of a busy server, which may say in Retry-After how long to wait.
_BUSY = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network; its size in bytes and its SHA-256 if they are known.

    ``saved_as``: its name here and on a mirror, if it is not the last part of its address.
    """

    url: str
    size: int | None = None
    sha256: str | None = None
    saved_as: str | None = None

    @property
    def name(self) -> str:
        """The name of the file here and on a mirror."""
        return self.saved_as or urlsplit(self.url).path.rsplit("/", 1)[-1]

    def fault(self, path: Path) -> str | None:
        """What is wrong with the downloaded file, or None."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"has {size:,} bytes instead of {self.size:,}"
        if self.sha256 is not None and (checksum := sha256(path)) != self.sha256:
            return f"has the SHA-256 {checksum} instead of {self.sha256}"
        return None


def obtain_all(
    files: Sequence[RemoteFile], folder: Path, report: Report, mirror: str | None = None
) -> list[Path]:
    """The verified files in ``folder``; missing ones are downloaded (from ``mirror``/NAME).

    Raises:
        UserError: a file is another one or cannot be had, the disk has no room for all, or another
            process is downloading into ``folder``.
    """
    for file in files:
        path = folder / file.name
        if path.exists() and (fault := file.fault(path)):
            raise UserError(
                f"{path} {fault}; delete it to have it downloaded, or put the right one there"
            )
    missing = [file for file in files if not (folder / file.name).exists()]
    if missing:
        with locked(folder / ".download.lock"):
            _download_all(missing, folder, report, mirror)
    return [folder / file.name for file in files]


def _download_all(
    files: Sequence[RemoteFile], folder: Path, report: Report, mirror: str | None
) -> None:
    need = sum((file.size or 0) - _size(_part(folder / file.name)) for file in files)
    check_room(folder, need, f"downloading {', '.join(file.name for file in files)}")
    for file in files:
        url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
        path = folder / file.name
        part = _part(path)
        _download(url, part, file, report)
        _version_file(part).unlink(missing_ok=True)
        if fault := file.fault(part):
            part.unlink()
            raise UserError(
                f"{url}: the download {fault}; it was not kept; try again, or another --mirror"
            )
        part.rename(path)


def _part(path: Path) -> Path:
    """The file for the part that has come."""
    return path.with_name(f"{path.name}.part")


def _version_file(part: Path) -> Path:
    """The file for the server's name of the version that a part is of."""
    return part.with_name(f"{part.name}.version")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _download(url: str, part: Path, file: RemoteFile, report: Report) -> None:
    failures = 0
    retries = Retry(
        total=None,
        connect=0,
        read=0,
        status=ATTEMPTS - 1,
        backoff_factor=PAUSE,
        status_forcelist=_BUSY,
        raise_on_status=False,
    )
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        while True:
            before = _size(part)
            try:
                return _resume(session, url, part, file, report)
            except requests.RequestException as error:
                failures = 1 if _size(part) > before else failures + 1
                if failures == ATTEMPTS or error.response is not None:
                    raise UserError(
                        f"cannot download {url}: {_reason(error)}; the part that has come is kept; "
                        "run the same command again, or name a --mirror or a folder of --archives"
                    ) from error
                time.sleep(PAUSE * 2 ** (failures - 1))


def _resume(
    session: requests.Session, url: str, part: Path, file: RemoteFile, report: Report
) -> None:
    """Download the rest of ``part``, in one request."""
    have = _size(part)
    if file.size is not None and have >= file.size:
        return  # whole, or wrong, which its checksum shows
    headers = {"Accept-Encoding": "identity"} | _rest_wanted(part, file, have)
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing
        response.raise_for_status()
        if not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            have = 0  # the server sends all of it, maybe of a newer version
        rest = response.headers.get("Content-Length")
        total = have + int(rest) if rest else file.size
        if total is not None and file.size not in (None, total):
            raise UserError(
                f"{url} has {total:,} bytes instead of {file.size:,}: another file; "
                "nothing of it was taken"
            )
        version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        _version_file(part).write_text(version, "utf-8")
        # Some servers call .gz an encoding, though asked for none: it would be undone here.
        response.raw.headers.pop("Content-Encoding", None)
        with part.open("ab" if have else "wb") as stream:
            for block in response.iter_content(BLOCK):
                stream.write(block)
                have += len(block)
                if total is not None:
                    report(f"download {file.name}, MB", have // MB, max(1, total // MB))
    if total is not None and have < total:
        raise requests.ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _rest_wanted(part: Path, file: RemoteFile, have: int) -> dict[str, str]:
    """Headers that ask for the rest of the same version of a file, or for all of another one."""
    if not have:
        return {}
    path = _version_file(part)
    version = path.read_text("utf-8") if path.exists() else ""
    if version and not version.startswith("W/"):  # a weak ETag names no bytes
        return {"Range": f"bytes={have}-", "If-Range": version}
    # The checksum shows parts that do not belong together.
    return {"Range": f"bytes={have}-"} if file.sha256 else {}


def _reason(error: requests.RequestException) -> str:
    """The innermost cause, in one line."""
    cause: BaseException = error
    while isinstance(getattr(cause, "reason", None) or next(iter(cause.args), None), BaseException):
        cause = getattr(cause, "reason", None) or cause.args[0]
    return " ".join(str(cause).split()) or type(error).__name__

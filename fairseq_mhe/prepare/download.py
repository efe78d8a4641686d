"""Files from the network: continued where they broke off, used only when their SHA-256 is right."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import requests

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_room, sha256
from fairseq_mhe.common.steps import locked
from fairseq_mhe.prepare.progress import Report

ATTEMPTS = 5  # without a single byte in between
PAUSE = 2.0  # seconds before the second attempt, and twice as many before each further one
TIMEOUT = 60.0  # seconds without a byte
BLOCK = 1 << 16  # bytes; what a broken connection costs at most
MB = 10**6


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network; its size in bytes and its SHA-256 where they are known.

    ``saved_as``: its name here and on a mirror, where not the last part of its address.
    """

    url: str
    size: int | None = None
    sha256: str | None = None
    saved_as: str | None = None

    @property
    def name(self) -> str:
        """By which it is saved, and found on a mirror."""
        return self.saved_as or urlsplit(self.url).path.rsplit("/", 1)[-1]


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
        if path.exists() and (fault := _fault(path, file)):
            raise UserError(
                f"{path} {fault}; delete it to have it downloaded, or put the right one there"
            )
    if not all((folder / file.name).exists() for file in files):
        with locked(folder / ".download.lock"):
            _obtain_missing(files, folder, report, mirror)
    return [folder / file.name for file in files]


def _obtain_missing(
    files: Sequence[RemoteFile], folder: Path, report: Report, mirror: str | None
) -> None:
    missing = [file for file in files if not (folder / file.name).exists()]
    what = missing[0].name if len(missing) == 1 else f"{len(missing)} files"
    need = sum((file.size or 0) - _size(_part(folder / file.name)) for file in missing)
    check_room(folder, need, f"downloading {what}")
    bar = _Bar(report, f"download {what}, MB", sum(file.size or 0 for file in missing))
    for file in missing:
        _obtain(file, folder / file.name, bar, mirror)


@dataclass
class _Bar:
    """Tells how much of several files has come, as one step: bytes in, megabytes out."""

    report: Report
    title: str
    total: int
    finished: int = 0

    def received(self, have: int, size: int) -> None:
        """``have`` of the ``size`` bytes of one file."""
        # More than was expected where a size was not known.
        total = max(self.total, self.finished + size)
        self.report(self.title, (self.finished + have) // MB, max(1, total // MB))


def _obtain(file: RemoteFile, path: Path, bar: _Bar, mirror: str | None) -> None:
    url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
    part = _part(path)
    _download(url, part, file, bar)
    if fault := _fault(part, file):
        part.unlink()
        raise UserError(
            f"{url}: what came {fault}; it was not kept; try again, or another --mirror"
        )
    bar.finished += _size(part)
    part.rename(path)


def _part(path: Path) -> Path:
    """What has come of a file that is not whole."""
    return path.with_name(f"{path.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fault(path: Path, file: RemoteFile) -> str | None:
    """What is wrong with the file, or None."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"has {size:,} bytes instead of {file.size:,}"
    if file.sha256 is not None and (found := sha256(path)) != file.sha256:
        return f"has the SHA-256 {found} instead of {file.sha256}"
    return None


def _download(url: str, part: Path, file: RemoteFile, bar: _Bar) -> None:
    failures = 0
    with requests.Session() as session:
        while True:
            before = _size(part)
            try:
                return _go_on(session, url, part, file, bar)
            except requests.RequestException as error:
                failures = 1 if _size(part) > before else failures + 1
                refused = error.response is not None and error.response.status_code < 500
                if failures == ATTEMPTS or refused:
                    raise UserError(
                        f"cannot download {url}: {_reason(error)}; what has come is kept; run the "
                        "same command again, or name a --mirror or a folder of --archives"
                    ) from error
                time.sleep(PAUSE * 2 ** (failures - 1))


def _go_on(session: requests.Session, url: str, part: Path, file: RemoteFile, bar: _Bar) -> None:
    """Download what is missing of ``part``, in one request."""
    have = _size(part)
    if file.size is not None and have >= file.size:
        return  # whole, or wrong; that is seen when it is verified
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing
        response.raise_for_status()
        if not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            have = 0  # the server sends all of it
        rest = response.headers.get("Content-Length")
        total = have + int(rest) if rest else file.size
        if total is not None and file.size not in (None, total):
            raise UserError(
                f"{url} has {total:,} bytes instead of {file.size:,}: another file; "
                "nothing of it was taken"
            )
        # Some servers call .gz an encoding, though asked for none: it would be undone here.
        response.raw.headers.pop("Content-Encoding", None)
        with part.open("ab" if have else "wb") as stream:
            for block in response.iter_content(BLOCK):
                stream.write(block)
                have += len(block)
                if total is not None:
                    bar.received(have, total)
    if total is not None and have < total:
        raise requests.ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _reason(error: requests.RequestException) -> str:
    """The innermost cause, in one line."""
    cause: BaseException = error
    while isinstance(getattr(cause, "reason", None) or next(iter(cause.args), None), BaseException):
        cause = getattr(cause, "reason", None) or cause.args[0]
    return " ".join(str(cause).split()) or type(error).__name__

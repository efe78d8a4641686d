"""Published files: downloads that resume and are verified, and the members of their archives."""

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

RETRIES = 4  # of a request that gives no byte
PAUSE = 2.0  # seconds before the second retry, and twice as many before each further one
TIMEOUT = 60.0  # seconds without a byte
BLOCK = 1 << 16  # bytes; what a broken connection costs at most
MB = 10**6
#: Answers of a busy server, which may say in Retry-After how long to wait.
_BUSY = (408, 429, 500, 502, 503, 504)
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, EOFError, zlib.error)


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network, and its SHA-256 if that is known."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of the file here and on a mirror."""
        return self.url.rpartition("/")[2]


def download(
    files: Sequence[RemoteFile], folder: Path, mirror: str | None = None
) -> list[Path]:
    """The verified files in ``folder``, downloaded where missing; UserError where that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        path = folder / file.name
        advice = "delete it to have it downloaded, or put the right one there"
        missing = not path.exists()
        if missing:
            url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
            _download(url, path)
            advice = f"{url} was not kept; try again, or another --mirror"
        if file.sha256 not in (None, checksum := sha256(path)):
            if missing:
                path.unlink()
            problem = f"has the SHA-256 {checksum} instead of {file.sha256}"
            raise UserError(f"{path} {problem}; {advice}")
    return [folder / file.name for file in files]


def _download(url: str, path: Path) -> None:
    part, whole = path.with_name(f"{path.name}.part"), False
    part.touch()
    retries = Retry(
        RETRIES, backoff_factor=PAUSE, status_forcelist=_BUSY, raise_on_status=False
    )
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        while not whole:
            have = part.stat().st_size
            try:
                whole = _resume(session, url, part)
            except requests.RequestException as error:
                if part.stat().st_size == have:
                    raise UserError(
                        f"cannot download {url}: {error}; try again, which resumes, use --mirror, "
                        f"or put it into {path.parent}"
                    ) from error
    part.with_suffix(".version").unlink(missing_ok=True)
    part.rename(path)


def _resume(session: requests.Session, url: str, part: Path) -> bool:
    """Download the rest of ``part``, whose ETag is in .version; True if it is whole then."""
    have, version = part.stat().st_size, part.with_suffix(".version")
    headers = {"Accept-Encoding": "identity"}
    etag = version.read_text("utf-8") if have and version.exists() else ""
    if etag and not etag.startswith("W/"):  # a weak ETag names no bytes
        headers |= {"Range": f"bytes={have}-", "If-Range": etag}
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            return True  # nothing is missing
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            have = 0  # the server sends all of it, maybe of a newer version
        rest = response.headers.get("Content-Length")
        total = have + int(rest) if rest else None
        etag = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        version.write_text(etag, "utf-8")
        # Some servers call .gz an encoding, though asked for none: it would be undone here.
        response.raw.headers.pop("Content-Encoding", None)
        with Board("MB") as board, part.open("ab" if have else "wb") as stream:
            for block in response.iter_content(BLOCK):
                stream.write(block)
                have += len(block)
                if total is not None:
                    board.update(part.stem, have // MB, max(1, total // MB))
    return total is None or have >= total


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack named ``members`` of a zip or tar; UserError if one is missing, or it is damaged."""
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped:
                for name in set(members).intersection(zipped.namelist()):
                    zipped.extract(name, out)
        else:
            with tarfile.open(archive) as packed:
                _unpack_tar(packed, members, out)
    except _DAMAGED as error:
        advice = "delete it to have it downloaded again"
        raise UserError(f"{archive} is damaged: {error}; {advice}") from error
    missing = sorted(name for name in members if not (out / name).is_file())
    if missing:
        raise UserError(
            f"{archive} has no {' and no '.join(missing)}; is it the right one?"
        )


def _unpack_tar(packed: tarfile.TarFile, members: Collection[str], out: Path) -> None:
    """Regular files under names that we know; Python 3.11.4 and newer has the filter."""
    packed.extraction_filter = getattr(tarfile, "data_filter", None)
    for member in packed:
        if member.isfile() and posixpath.normpath(member.name) in members:
            member.mode = 0o644  # else an older Python keeps set-user-ID bits
            packed.extract(member, out)
    # To the end of the file, where gzip has a checksum of all.
    while packed.fileobj and packed.fileobj.read(1 << 20):
        pass

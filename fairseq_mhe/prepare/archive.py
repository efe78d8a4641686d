"""Archives unpacked with care: only the members that are needed, nothing outside of the folder."""

import gzip
import lzma
import os
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Self

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.steps import WORK_PREFIX

# Of all members together: text is packed to a quarter, and small archives may do better.
_MOST_TIMES, _MOST_BYTES = 20, 10_000_000
_LONGEST_HEADER = 1_000_000  # bytes of a name or of attributes, which tarfile reads at once
_LONG_HEADERS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
# What tarfile lets through beside its own errors.
_DAMAGED = (
    *(tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(ValueError, IndexError, OverflowError),
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError),  # of zip: another packing, a password
)


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack ``members``, named as in the archive (zip, or tar, compressed or not), into ``out``.

    Their content is copied into files of those names, so that no link, owner or mode of the
    archive's takes effect; tarfile's own filters for that are not in Python 3.11 before 3.11.4,
    which Debian 12 has. They appear when all of them are there.

    Raises:
        UserError: one is missing, the archive is damaged or far larger than packed text is, or any
        of its members would be written elsewhere.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=out) as work:
        missing = set(members)
        try:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(archive) as packed:
                    _copy_zipped(archive, packed, missing, Path(work))
            else:
                with tarfile.open(archive, tarinfo=_Member) as tar:
                    _copy_needed(archive, tar, missing, Path(work))
        except _DAMAGED as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{archive} is damaged: {reason}; delete it to have it downloaded again"
            ) from error
        if missing:
            raise UserError(
                f"{archive} has no {' and no '.join(sorted(missing))}; is it the right archive?"
            )
        for name in members:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(work) / name, out / name)


class _Member(tarfile.TarInfo):
    """A member whose size is one, and whose name and attributes are no bomb."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """One header; those of names and attributes come before the member's own."""
        found = super().frombuf(buf, encoding, errors)
        if found.size < 0 or (found.type in _LONG_HEADERS and found.size > _LONGEST_HEADER):
            raise tarfile.ReadError(f"a header says {found.size:,} bytes")
        return found


def _copy_needed(archive: Path, tar: tarfile.TarFile, missing: set[str], work: Path) -> None:
    """Copy the members of ``missing`` into ``work`` and take them out of it."""
    most = _MOST_TIMES * archive.stat().st_size + _MOST_BYTES
    total = 0
    for member in tar:
        name = posixpath.normpath(member.name)
        if leads_out(name):  # needed or not
            raise _unsafe(archive, f"{member.name} lies outside of it")
        total += tarfile.BLOCKSIZE + member.size  # as its headers say, before it is unpacked
        if total > most:
            raise _unsafe(archive, f"it holds over {most:,} bytes, too many for its own size")
        if name not in missing or member.isdir():
            continue
        content = tar.extractfile(member) if member.isfile() and not member.issparse() else None
        if content is None:
            raise _unsafe(archive, f"{member.name} is a link, a device or has holes, no plain file")
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with content, path.open("wb") as file:
            shutil.copyfileobj(content, file)
        missing.discard(name)


def _copy_zipped(archive: Path, packed: zipfile.ZipFile, missing: set[str], work: Path) -> None:
    """The same of a zip archive; nothing else of it is looked at."""
    found = [member for member in packed.infolist() if member.filename in missing]
    most = _MOST_TIMES * archive.stat().st_size + _MOST_BYTES
    if sum(member.file_size for member in found) > most:  # zipfile reads no more than it says
        raise _unsafe(archive, f"it holds over {most:,} bytes, too many for its own size")
    for member in found:
        path = work / member.filename
        path.parent.mkdir(parents=True, exist_ok=True)
        with packed.open(member) as content, path.open("wb") as file:
            shutil.copyfileobj(content, file)
        missing.discard(member.filename)


def leads_out(name: str) -> bool:
    """Whether a member of this normalised name would be written outside of its folder."""
    return posixpath.isabs(name) or name.split("/")[0] == ".."


def _unsafe(archive: Path, what: str) -> UserError:
    return UserError(f"{archive} is refused, it is not safe to unpack: {what}")

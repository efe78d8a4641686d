"""Unpacking the members of an archive that are needed."""

import gzip
import lzma
import os
import posixpath
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import WORK_PREFIX

_DAMAGED = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
)


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack ``members``, named as in the archive (zip, or tar, compressed or not), into ``out``.

    They appear when all of them are there.

    Raises:
        UserError: a member is missing, or the archive is damaged.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=out) as folder:
        work = Path(folder)
        unpack = _unpack_zip if archive.suffix == ".zip" else _unpack_tar
        try:
            unpack(archive, members, work)
        except _DAMAGED as error:
            raise UserError(
                f"{archive} is damaged: {error}; delete it to have it downloaded again"
            ) from error
        missing = [name for name in members if not (work / name).is_file()]
        if missing:
            raise UserError(
                f"{archive} has no {' and no '.join(sorted(missing))}; is it the right archive?"
            )
        for name in members:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / name, out / name)


def _unpack_zip(archive: Path, members: Collection[str], work: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in set(members).intersection(packed.namelist()):
            packed.extract(name, work)


def _unpack_tar(archive: Path, members: Collection[str], work: Path) -> None:
    with tarfile.open(archive) as packed:
        for member in packed:
            name = posixpath.normpath(member.name)
            if name in members and member.isfile():
                packed.extract(member.replace(name=name, deep=False), work, filter="data")
        # To the end of the file, where gzip has a checksum of all.
        while packed.fileobj and packed.fileobj.read(1 << 20):
            pass

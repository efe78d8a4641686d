"""Unpacking the members of an archive that are needed."""

import lzma
import os
import posixpath
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.steps import WORK_PREFIX

# What tarfile, zipfile and their decompressors raise of damaged archives.
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, lzma.LZMAError)


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack ``members``, named as in the archive (zip, or tar, compressed or not), into ``out``.

    They appear when all of them are there.

    Raises:
        UserError: a member is missing, or the archive is damaged.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=out) as work:
        unpack = _unpack_zip if archive.suffix == ".zip" else _unpack_tar
        try:
            missing = set(members) - set(unpack(archive, members, work))
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno:  # a full disk, say
                raise
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


def _unpack_zip(archive: Path, members: Collection[str], folder: str) -> Iterator[str]:
    """The members that the archive has, each when it is unpacked into ``folder``."""
    with zipfile.ZipFile(archive) as packed:
        for name in members:
            if name in packed.namelist():
                packed.extract(name, folder)
                yield name


def _unpack_tar(archive: Path, members: Collection[str], folder: str) -> Iterator[str]:
    """The members that the archive has, each when it is unpacked into ``folder``."""
    with tarfile.open(archive) as packed:
        for member in packed:
            name = posixpath.normpath(member.name)
            if name in members and member.isfile():
                packed.extract(member.replace(name=name, deep=False), folder, filter="data")
                yield name
        # To the end of the file, where gzip has a checksum of all.
        while packed.fileobj and packed.fileobj.read(1 << 20):
            pass

"""Unpacking the members of an archive that are needed."""

import gzip
import lzma
import os
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, cast

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.steps import WORK_PREFIX

# What tarfile and zipfile raise beside OSError.
_DAMAGED = (
    *(tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError),  # of zip: another packing, a password
)


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack ``members``, named as in the archive (zip, or tar, compressed or not), into ``out``.

    Their content is copied into files of those names, so that no path, link, owner or mode of the
    archive takes effect. They appear when all of them are there.

    Raises:
        UserError: one is missing, or the archive is damaged.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=out) as work:
        missing = set(members)
        try:
            for name, content in _contents(archive, missing):
                path = Path(work) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)
                missing.discard(name)
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


def _contents(archive: Path, names: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of the files of an archive that are among ``names``."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if name in names:
                    with packed.open(name) as content:
                        yield name, content
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            name = posixpath.normpath(member.name)
            if name in names and member.isfile():
                yield name, cast(IO[bytes], tar.extractfile(member))

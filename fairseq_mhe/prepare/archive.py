"""Archives unpacked with care: only the members that are needed, nothing outside of the folder."""

from __future__ import annotations

import posixpath
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path

from fairseq_mhe.errors import UserError


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack ``members``, named as in the archive (tar, compressed or not), into the folder ``out``.

    Raises:
        UserError: one is missing, the archive is damaged, or any of its members would be written elsewhere.
    """
    missing = set(members)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = posixpath.normpath(member.name)
                tarfile.data_filter(member, str(out))  # refuses what a tar file should not have, needed or not
                if name in missing and member.isfile():
                    tar.extract(member.replace(name=name, deep=False), out, filter="data")
                    missing.discard(name)
    except tarfile.FilterError as error:
        raise UserError(f"{archive} is refused, it is not safe to unpack: {error}") from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{archive} is damaged: {error}; delete it to have it downloaded again") from error
    if missing:
        raise UserError(f"{archive} has no {' and no '.join(sorted(missing))}; is it the right archive?")

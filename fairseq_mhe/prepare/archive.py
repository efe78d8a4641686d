"""Archives unpacked with care: only the members that are needed, nothing outside of the folder."""

from __future__ import annotations

import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path

from fairseq_mhe.common.errors import UserError


def extract(archive: Path, members: Collection[str], out: Path) -> None:
    """Unpack ``members``, named as in the tar archive (compressed or not), into the folder ``out``.

    Their content is copied into files of those names, so that no link, owner or mode of the
    archive's takes effect; tarfile's own filters for that are not in Python 3.11 before 3.11.4,
    which Debian 12 has.

    Raises:
        UserError: one is missing, the archive is damaged, or any of its members would be written
        elsewhere.
    """
    missing = set(members)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = posixpath.normpath(member.name)
                if leads_out(name):  # needed or not
                    raise _unsafe(archive, f"{member.name} lies outside of it")
                if name in missing and not member.isdir():
                    _copy(archive, tar, member, out / name)
                    missing.discard(name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(
            f"{archive} is damaged: {error}; delete it to have it downloaded again"
        ) from error
    if missing:
        raise UserError(
            f"{archive} has no {' and no '.join(sorted(missing))}; is it the right archive?"
        )


def leads_out(name: str) -> bool:
    """Whether a member of this normalised name would be written outside of its folder."""
    return posixpath.isabs(name) or name.split("/")[0] == ".."


def _copy(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member) if member.isfile() else None
    if content is None:
        raise _unsafe(archive, f"{member.name} is a link or a device, not a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file)


def _unsafe(archive: Path, what: str) -> UserError:
    return UserError(f"{archive} is refused, it is not safe to unpack: {what}")

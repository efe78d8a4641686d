"""Unpacks regular files of tar and zip archives; nothing is written outside the folder."""

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from fairseq_mhe.common.errors import UserError

_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,  # gzip's and bzip2's, without a number
)


def extract(archive: Path, folder: Path, names: Collection[str] = ()) -> None:
    """Unpack the files ``names`` of an archive into ``folder``; by default, all files.

    Raises UserError if the archive is damaged, lacks one of them, or if all are asked for and one
    is a link or outside its folder.
    """
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped:
                members = zipped.namelist()
                for name in set(names or members).intersection(members):
                    zipped.extract(name, folder)
        else:
            _unpack_tar(archive, folder, names)
    except RuntimeError as error:
        # zipfile's: encrypted, or a compression that it does not know
        problem = f"{archive} cannot be unpacked: {error}"
        raise UserError(f"{problem}; unpack it first") from error
    except _DAMAGED as error:
        if getattr(error, "errno", None):
            raise  # of the disk
        problem = f"{archive} is damaged or no archive: {error}"
        advice = "delete it to download it again, or use another"
        raise UserError(f"{problem}; {advice}") from error
    missing = sorted(name for name in names if not (folder / name).is_file())
    if missing:
        lacking = " and no ".join(missing)
        raise UserError(f"{archive} has no {lacking}; is it the right archive?")


def _unpack_tar(archive: Path, folder: Path, names: Collection[str]) -> None:
    with tarfile.open(archive) as packed:
        for member in packed:
            path = PurePosixPath(member.name)  # without a ./ at the beginning
            if names and str(path) not in names:
                continue
            if path.is_absolute() or ".." in path.parts:
                raise UserError(f"{archive}: its member {path} is outside its folder")
            content = packed.extractfile(member) if member.isreg() else None
            if content:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with (folder / path).open("wb") as output:
                    shutil.copyfileobj(content, output)
            elif not names and not member.isdir():
                problem = "is a link or no regular file"
                raise UserError(f"{archive}: its member {path} {problem}")
        # Read to the end of the file, where gzip stores the checksum of the whole.
        while packed.fileobj and packed.fileobj.read(1 << 20):
            pass

"""Output is complete or absent, and a path that cannot be written is a UserError."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe.common.files import atomic_path, check_output, output_folder, write_text
from tests.fixtures.refusals import refuses


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_only_regular_files_are_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "there"
    make(path)
    before = path.lstat()[:4]  # mode, inode, device and links
    with refuses(path, "not a regular file"):
        write_text(path, "text")
    assert path.lstat()[:4] == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_folder_is_created_or_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert output_folder(Path("new") / "folder") == tmp_path / "new" / "folder"
    write_text(tmp_path / "new" / "folder" / "below" / "it" / "a.txt", "text")
    with refuses("with:colon"):
        output_folder(Path("with:colon"))
    for check, path in ((output_folder, __file__), (check_output, f"{__file__}/folder/file")):
        with refuses(f"{__file__} is a file"):
            check(Path(path))
    (tmp_path / "new" / "file").mkdir()
    assert output_folder(tmp_path / "new") == tmp_path / "new"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "model [1].pt"
    dead = [tmp_path / f".model [1].pt.{number}.part" for number in (2**22 + 1, 2**22 + 2)]
    dead[0].mkdir()
    (dead[0] / "weights").touch()
    dead[1].touch()
    alive = tmp_path / f".model [1].pt.{os.getppid()}.part"
    alive.touch()
    with atomic_path(path) as temporary:
        temporary.write_text("whole")
    with refuses(path, "full: make room"), atomic_path(path):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(FileNotFoundError, match="no input"), atomic_path(path):
        (tmp_path / "no input").read_bytes()
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \udcff")
    assert sorted(tmp_path.iterdir()) == sorted([alive, path])

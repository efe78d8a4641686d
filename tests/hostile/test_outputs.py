"""An output replaces a regular file, or is refused: never a folder, a device, a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_text


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/null")


OTHERS = {"a folder": Path.mkdir, "a pipe": _pipe, "a socket": _socket, "a device": _link_to_device}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_regular_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    make: Callable[[Path], None] = OTHERS[kind]
    make(Path("there"))
    before = Path("there").lstat()
    with pytest.raises(UserError, match="cannot write there: it is no file, and only files are"):
        write_text(Path("there"), "text")
    assert Path("there").lstat() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]

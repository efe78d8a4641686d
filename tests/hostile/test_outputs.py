"""An output replaces a regular file, or is refused: never a folder, a device, a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, write_text


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
    with pytest.raises(UserError, match=f"cannot write there: it is {kind}, and only a file is"):
        write_text(Path("there"), "text")
    assert Path("there").lstat() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]


@pytest.mark.parametrize("path", ["", ".", "..", "/"])
def test_what_names_no_file_is_refused_before_work(path: str) -> None:
    with pytest.raises(UserError, match="cannot write"), atomic_path(Path(path)):
        pytest.fail("work began")


def test_a_file_and_a_link_to_one_are_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "file").read_text() == "old"
    assert (tmp_path / "link").read_text() == "new"


def test_a_folder_for_runs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--out ''`` trained in the current folder."""
    monkeypatch.chdir(tmp_path)
    for words in (
        ["quickstart", "--out", ""],
        ["train", "tiny", "mha", "--data", "d", "--out", ""],
        ["run-table", "--data", "d", "--out="],
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2
    assert list(tmp_path.iterdir()) == []

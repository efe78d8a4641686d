"""Folders that fairseq's commands can write in, or one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, check_writable, output_folder


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write in"):
        check_writable(tmp_path / "file" / "folder")
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_an_output_folder_is_made_and_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert output_folder(Path("new") / "folder") == tmp_path / "new" / "folder"
    assert (tmp_path / "new" / "folder").is_dir()
    with pytest.raises(UserError, match="fairseq splits paths at colons"):
        output_folder(Path("with:colon"))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "model [1].pt"
    dead = [tmp_path / f".model [1].pt.{number}.part" for number in (2**22 + 1, 2**22 + 2)]
    dead[0].mkdir()
    (dead[0] / "weights").touch()
    dead[1].touch()
    alive = tmp_path / f".model [1].pt.{os.getppid()}.part"
    alive.touch()
    with atomic_path(path) as temporary:
        temporary.write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([alive, path])

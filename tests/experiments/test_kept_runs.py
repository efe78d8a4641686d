"""Runs kept without their checkpoints give the same table, and train nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairseq_mhe import cli
from tests.fixtures.trained import TABLE_SIZE, table_words

NAMES = ("tiny-mha-seed1", "tiny-mhe_mul-seed1")


def kept(table: Path, out: Path) -> int:
    return cli.main(["keep", *(str(table / name) for name in NAMES), "--out", str(out)])


def test_the_table_comes_out_again(
    miniature: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "kept runs"
    assert kept(table, runs) == 0
    # Not only --finished-only: the same command, which trains what is not done, finds it all done.
    assert cli.main(["run-table", *table_words(miniature, runs, rows=("tiny",))]) == 0
    assert not list(runs.rglob("*.pt"))
    found, before = (json.loads((f / "table.json").read_text()) for f in (runs, table))
    assert found == [cell for cell in before if cell["row"] == "tiny"]
    for path in (table / NAMES[1] / "test").iterdir():
        assert (runs / NAMES[1] / "test" / path.name).read_bytes() == path.read_bytes()

    words = ["evaluate", str(runs / NAMES[0]), "--subset", "valid", "--cpu"]
    assert cli.main(words) == 2
    told = f"{runs / NAMES[0]} has no model.pt and no checkpoints to make it of"
    assert told in capsys.readouterr().err
    words = ["run-table", *table_words(miniature, runs, "--subset", "valid", rows=("tiny",))]
    assert cli.main(words) == 2
    assert told in capsys.readouterr().err
    places = ["--data", str(miniature), "--out", str(runs), *TABLE_SIZE]
    assert cli.main(["train", "tiny", "mha", *places]) == 2, "it is not trained again"
    assert told in capsys.readouterr().err
    assert (runs / NAMES[0] / "test" / "scores.json").is_file()
    assert not list(runs.rglob("*.pt"))
    assert kept(table, runs) == 2
    assert f"{runs / NAMES[0]} exists: remove it, or name another" in capsys.readouterr().err


def test_none_is_kept_where_one_cannot_be(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished = tmp_path / "runs" / NAMES[0]
    shutil.copytree(table / NAMES[0], unfinished, ignore=shutil.ignore_patterns("scores.json"))
    out = tmp_path / "out"
    for folder, told in (
        (unfinished, "is not finished: it has no scores"),
        (tmp_path, "is no run folder: it has no config.json"),
    ):
        assert cli.main(["keep", str(table / NAMES[1]), str(folder), "--out", str(out)]) == 2
        assert f"{folder} {told}" in capsys.readouterr().err
        assert not out.exists()

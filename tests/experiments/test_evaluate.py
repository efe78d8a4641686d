"""``train`` and ``evaluate`` as commands: what they print, what they refuse, and that nothing is
done twice.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.runs.job import read_job
from tests.fixtures.trained import TABLE_SIZE, TABLE_UPDATES, snapshot


def test_a_scored_run_is_printed_and_not_scored_again(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = table / "tiny-mha-seed1"
    before = snapshot(run)
    assert cli.main(["evaluate", str(run), "--cpu"]) == 0
    bleu, chrf, tokenised = capsys.readouterr().out.splitlines()
    assert bleu.startswith("BLEU ")
    assert "tok:13a" in bleu
    assert chrf.startswith("chrF ")
    assert tokenised.startswith("tokenised, compounds split, as in older papers: ")
    assert snapshot(run) == before


def test_a_trained_run_is_not_trained_again(
    miniature: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(table)
    words = ["train", "Tiny", "mha", "--data", str(miniature), "--out", str(table), *TABLE_SIZE]
    assert cli.main([*words, "--evaluate"]) == 0
    found = capsys.readouterr()
    assert found.out.splitlines()[-1] == str(table / "tiny-mha-seed1")
    assert "tiny-mha-seed1, on the CPU, one model at a time" in found.err
    batch = "512 tokens an update = 256 tokens x 1 device x update-freq 2"
    assert f"tiny: {TABLE_UPDATES} updates, {batch}" in found.err
    assert snapshot(table) == before


def test_other_data_are_refused(
    miniature: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(miniature, other)
    manifest = json.loads((other / "manifest.json").read_text())
    first = next(iter(next(iter(manifest["steps"].values()))["files"].values()))
    first["sha256"] = "0" * 64
    (other / "manifest.json").write_text(json.dumps(manifest))
    assert (
        cli.main(["evaluate", str(table / "tiny-mha-seed1"), "--cpu", "--data", str(other)])
        == 2
    )
    assert "is not the data that" in capsys.readouterr().err


def test_a_half_trained_run_is_refused(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "tiny-mha-seed1"
    shutil.copytree(table / run.name, run)
    for name in ("model.pt", "metrics.json"):
        (run / name).unlink()
    assert cli.main(["evaluate", str(run), "--cpu", "--subset", "valid"]) == 2
    assert (
        f"is not finished: it has no model.pt of all {TABLE_UPDATES} updates; "
        "run the command that made it again" in capsys.readouterr().err
    )
    assert cli.main(["evaluate", str(tmp_path), "--cpu"]) == 2
    assert "is no run folder" in capsys.readouterr().err


def test_an_average_that_is_missing_is_made_again_without_training(
    miniature: Path, table: Path, tmp_path: Path
) -> None:
    run = tmp_path / "tiny-mha-seed1"
    shutil.copytree(table / run.name, run)
    (run / "model.pt").unlink()
    (run / "checkpoints" / "checkpoint_best.pt.tmp").touch()
    trained = read_job(run).metrics.stat().st_mtime_ns
    words = ["--data", str(miniature), "--out", str(tmp_path), *TABLE_SIZE]
    assert cli.main(["train", "tiny", "mha", *words]) == 0
    assert (run / "model.pt").is_file()
    assert read_job(run).metrics.stat().st_mtime_ns == trained

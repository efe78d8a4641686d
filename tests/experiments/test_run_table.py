"""run-table by the real scripts: the table in every format, restarts after kills, and no training
done twice.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe import cli
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.report.significance import MIN_BASELINE_BLEU
from fairseq_mhe.report.translation_table import PAPER_FILES
from tests.fixtures.processes import kill, wait_for
from tests.fixtures.runs import HELD_OUT
from tests.fixtures.trained import TABLE_UPDATES, snapshot, table_script, table_words

Capture = pytest.CaptureFixture[str]

KINDS = ("mha", "mhe_mul")
#: Files that appear while run-table trains, and while it translates.
MOMENTS = ("*/checkpoints/checkpoint_*_2.pt", "*/test/generate.log")
#: Values that depend on the clock.
CLOCK = {"tokens_per_second", "sentences_per_second"}


def cells(out: Path) -> list[dict[str, Any]]:
    """Return table.json without the values that depend on the clock."""
    entries = json.loads((out / "table.json").read_text())
    return [{name: value for name, value in cell.items() if name not in CLOCK} for cell in entries]


def test_run_table_ends_with_the_table(table: Path) -> None:
    assert (table.parent / "table.stdout").read_text() == (table / "table.md").read_text()
    assert all((table / name).stat().st_size > 0 for name in PAPER_FILES)
    mha, mhe = cells(table)
    assert [(cell["row"], cell["attention"]) for cell in (mha, mhe)] == [("tiny", k) for k in KINDS]
    assert (mha["attention_parameters"], mhe["attention_parameters"]) == (393_216, 174_336)
    assert (mha["updates"], mha["batch_tokens"], mha["dropout"]) == (TABLE_UPDATES, 512, 0.1)
    assert (mhe["p_value"] is None) == (mha["bleu"] < MIN_BASELINE_BLEU)
    assert mha["p_value"] is None
    pairs = read_manifest(table.parent / "miniature data")["lines"]["train"]
    heading = f"# en-de, {pairs} pairs, {TABLE_UPDATES} updates: other updates or batches than "
    assert (table / "table.md").read_text().startswith(heading)
    scores = json.loads((table / "tiny-mha-seed1" / "test" / "scores.json").read_text())
    assert scores["tokenised"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:none")
    assert scores["sentences"] == HELD_OUT
    screen = (table.parent / "table.stderr").read_text()
    assert "2 of 2 models to train, on the CPU, float32" in screen
    batch = "batches of 512 = 256 x 1 x update-freq 2, float32"
    assert f"tiny: {TABLE_UPDATES} updates, {batch}" in screen
    assert "Traceback" not in screen


def test_a_second_run_table_trains_nothing(miniature: Path, table: Path, capsys: Capture) -> None:
    before = snapshot(table)
    assert cli.main(["run-table", *table_words(miniature, table)]) == 0
    assert capsys.readouterr().out == (table / "table.md").read_text()
    assert snapshot(table) == before


def test_a_table_names_the_unfinished_runs(miniature: Path, table: Path, tmp_path: Path) -> None:
    for name in ("tiny-mha-seed1", "tiny-mhe_mul-seed1"):
        shutil.copytree(table / name, tmp_path / name)
    words = table_words(miniature, tmp_path, "--finished-only", rows="tiny,small")
    assert cli.main(["run-table", *words]) == 0
    assert [cell["row"] for cell in cells(tmp_path)] == ["tiny", "tiny"]
    note = "Not finished, and left out: small-mha-seed1, small-mhe_mul-seed1."
    assert note in (tmp_path / "table.md").read_text()
    assert not (tmp_path / "small-mha-seed1" / "checkpoints").exists()


def trained_at(out: Path) -> dict[str, int]:
    """Return run -> the time at which its training finished."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/metrics.json")}


@pytest.mark.early
def test_run_table_killed_twice_ends_with_the_same_table(
    miniature: Path, environment: Path, table: Path, tmp_path: Path
) -> None:
    """Kill two starts by -9: the first while it trains, the second while it translates."""
    words, nowhere = table_words(miniature, tmp_path), subprocess.DEVNULL
    command = [sys.executable, "-m", "fairseq_mhe.cli", "run-table", *words]
    for moment in MOMENTS:
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
        wait_for(process, lambda pattern=moment: any(tmp_path.glob(pattern)))
        kill(process)
    finished = trained_at(tmp_path)
    assert finished, "a training must be finished"
    done = subprocess.run(
        table_script(environment, *words), capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert finished.items() <= trained_at(tmp_path).items(), "it must not run again"
    assert_same_table(tmp_path, table)


def assert_same_table(out: Path, table: Path) -> None:
    """Check that scores and translations equal those of the uninterrupted table, and that no
    training went on after its last update.
    """
    assert cells(out) == cells(table)
    for kind in KINDS:
        folder = f"tiny-{kind}-seed1/test/hypotheses.txt"
        assert (out / folder).read_text() == (table / folder).read_text()
        log = (out / f"tiny-{kind}-seed1" / "train.log").read_text().split("\n")
        starts = [line for line in log if line.startswith("--- ")]
        assert not any(f"from update {TABLE_UPDATES}," in line for line in starts)
    assert not list(out.rglob("*.part"))


def test_other_settings_are_refused_before_anything_is_trained(
    miniature: Path, table: Path, capsys: Capture
) -> None:
    before = snapshot(table)
    assert cli.main(["run-table", *table_words(miniature, table, "--updates", "9")]) == 2
    last = capsys.readouterr().err.strip().split("\n")[-1]
    assert last.startswith("fairseq-mhe run-table: error: ")
    assert f"options max_update: {TABLE_UPDATES}, now 9" in last
    assert snapshot(table) == before

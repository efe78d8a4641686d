"""From archives on a server to the whole table, through the real scripts: every format, any kill,
nothing twice.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fairseq_mhe import cli
from fairseq_mhe.experiments import run_table
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report.significance import LEAST_BASELINE, compare_seeds
from fairseq_mhe.report.translation_table import PAPER
from fairseq_mhe.runs.job import read_job
from fairseq_mhe.runs.recipes import recipe
from tests.fixtures.processes import kill
from tests.fixtures.runs import HELD_OUT
from tests.fixtures.trained import TABLE_ROWS, TABLE_UPDATES, snapshot, table_script, table_words

KINDS = ("mha", "mhe_mul")
#: How often the table is killed, and fewer than how many changes to its files a start makes until
#: then: a table takes about 300.
KILLS, CHANGES = 20, 100
#: What depends on the clock.
CLOCK = {"tokens_per_second", "sentences_per_second"}


def cells(out: Path) -> list[dict[str, Any]]:
    """table.json without what depends on the clock."""
    found = json.loads((out / "table.json").read_text())
    return [{name: value for name, value in cell.items() if name not in CLOCK} for cell in found]


def test_it_ends_in_the_table(table: Path) -> None:
    assert (table.parent / "table.stdout").read_text() == (table / "table.md").read_text()
    assert all((table / name).stat().st_size > 0 for name in PAPER.files)
    found = {(cell["row"], cell["attention"]): cell for cell in cells(table)}
    assert set(found) == {(row, kind) for row in TABLE_ROWS for kind in KINDS}
    mha, mhe = found["small", "mha"], found["small", "mhe_mul"]
    assert (mha["attention_parameters"], mhe["attention_parameters"]) == (2_359_296, 1_039_104)
    assert (mha["updates"], mha["batch_tokens"], mha["dropout"]) == (TABLE_UPDATES, 512, 0.2)
    assert (mhe["p_value"] is None) == (mha["bleu"] < LEAST_BASELINE)
    assert mha["p_value"] is None
    manifest = read_manifest(table.parent / "miniature data")
    assert manifest["source"]["corpus"] == "wmt14"
    pairs = manifest["lines"]["train"]
    assert (
        (table / "table.md")
        .read_text()
        .startswith(f"# en-de, {pairs} pairs, {TABLE_UPDATES} updates\n")
    )


def test_the_batch_arithmetic_and_the_overview_are_shown(table: Path) -> None:
    screen = (table.parent / "table.stderr").read_text()
    assert "4 of 4 cells to do, on the CPU" in screen
    assert (
        f"small: {TABLE_UPDATES} updates, 512 tokens an update = 256 tokens x 1 device x "
        "update-freq 2, float32" in screen
    )
    assert "Traceback" not in screen


def test_the_formats_agree(table: Path) -> None:
    expected = json.loads((table / "table.json").read_text())
    with (table / "table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["row"], row["attention"], float(row["chrf"])) for row in rows] == [
        (cell["row"], cell["attention"], cell["chrf"]) for cell in expected
    ]
    latex = (table / "table.tex").read_text()
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == 2
    assert r"mhe\_mul" in latex
    markdown = [
        line for line in (table / "table.md").read_text().split("\n") if line.startswith("| small")
    ]
    assert [re.split(r" *\| *", line)[8:11] for line in markdown[:2]] == [
        ["mha", "2.36", f"{expected[2]['bleu']:.2f}"],
        ["mhe_mul", "1.04", f"{expected[3]['bleu']:.2f}"],
    ]
    with Image.open(table / "picture.png") as image:
        assert image.size == (3600, 1100)


def test_every_cell_has_all_scores(table: Path) -> None:
    for kind in KINDS:
        run = read_job(table / f"small-{kind}-seed1")
        scores = json.loads((run.subset("test") / "scores.json").read_text())
        assert scores["tokenised"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:none")
        assert (
            len(list(read_lines(run.subset("test") / "hypotheses.txt")))
            == scores["sentences"]
            == HELD_OUT
        )


def test_a_second_run_trains_nothing(
    miniature: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(table)
    assert cli.main(["run-table", *table_words(miniature, table)]) == 0
    assert capsys.readouterr().out == (table / "table.md").read_text()
    assert snapshot(table) == before


def test_the_table_of_what_is_finished_names_the_rest(
    miniature: Path, table: Path, tmp_path: Path
) -> None:
    for name in ("tiny-mha-seed1", "tiny-mhe_mul-seed1"):
        shutil.copytree(table / name, tmp_path / name)
    assert cli.main(["run-table", *table_words(miniature, tmp_path, "--finished-only")]) == 0
    assert [cell["row"] for cell in cells(tmp_path)] == ["tiny", "tiny"]
    assert (
        "Not finished, and left out: small-mha-seed1, small-mhe_mul-seed1."
        in (tmp_path / "table.md").read_text()
    )
    assert not (tmp_path / "small-mha-seed1" / "checkpoints").exists()


def test_seeds_become_a_mean_with_its_deviation(
    miniature: Path, table: Path, tmp_path: Path
) -> None:
    """The second seeds are copies whose translations are changed, so that nothing has to be
    trained.
    """
    for kind in KINDS:
        shutil.copytree(table / f"tiny-{kind}-seed1", tmp_path / f"tiny-{kind}-seed1")
        other = tmp_path / f"tiny-{kind}-seed2"
        shutil.copytree(table / f"tiny-{kind}-seed1", other)
        config = json.loads((other / "config.json").read_text())
        config["settings"]["seed"] = config["settings"]["options"]["seed"] = 2
        (other / "config.json").write_text(json.dumps(config))
        references = list(read_lines(other / "test" / "references.txt"))
        (other / "test" / "hypotheses.txt").write_text("".join(f"{line}\n" for line in references))
        scores = json.loads((other / "test" / "scores.json").read_text())
        scores["bleu"]["score"] = 100.0
        (other / "test" / "scores.json").write_text(json.dumps(scores))
    assert (
        cli.main(
            [
                "run-table",
                *table_words(
                    miniature, tmp_path, "--seeds", "1,2", "--finished-only", rows=("tiny",)
                ),
            ]
        )
        == 0
    )
    mha, mhe = cells(tmp_path)
    assert mha["seeds"] == [1, 2]
    assert mha["bleu_deviation"] == pytest.approx((100 - 2 * (mha["bleu"] - 50)) / 2**0.5, abs=1e-3)
    runs = {
        kind: [
            list(read_lines(tmp_path / f"tiny-{kind}-seed{n}/test/hypotheses.txt")) for n in (1, 2)
        ]
        for kind in KINDS
    }
    assert mhe["p_value"] == compare_seeds(runs["mhe_mul"], runs["mha"], references).p_value


def trained_at(out: Path) -> dict[str, int]:
    """When the runs that finished their training did so."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/metrics.json")}


def killed_after(process: subprocess.Popen[Any], out: Path, changes: int) -> bool:
    """Kill it when it has made more changes to the files of its folder; False if it ends before.

    Changes, not seconds: how far a start comes is then the same on every machine.
    """
    before = snapshot(out)
    while process.poll() is None:
        now = snapshot(out)
        changes -= len(now.items() - before.items())
        if changes < 0:
            kill(process)
            return True
        before = now
        time.sleep(0.01)
    assert not process.returncode
    return False


@pytest.mark.early
def test_killed_at_random_moments_it_ends_in_the_same_table(
    miniature: Path, environment: Path, table: Path, tmp_path: Path
) -> None:
    """One row, two kinds: each start is killed by -9 after a random number of changes.

    A table that ends before has a successor.
    """
    command = [sys.executable, "-m", "fairseq_mhe.cli", "run-table"]
    chance, killed, half_done = random.Random(4), 0, 0
    outs, finished = [tmp_path / "1"], {}
    while killed < KILLS:
        out = outs[-1]
        process = subprocess.Popen(
            [*command, *table_words(miniature, out, rows=("tiny",))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ended = not killed_after(process, out, chance.randrange(CHANGES))
        now = trained_at(out)
        assert finished.items() <= now.items(), "what was trained is not trained again"
        killed += not ended
        half_done += not ended and any(out.rglob("*.pt"))
        finished = {} if ended else now
        if ended:
            outs.append(tmp_path / str(len(outs) + 1))
    assert half_done, "at least one was killed when there was something to lose"
    for out in outs:
        before = trained_at(out)
        line = table_script(environment, *table_words(miniature, out, rows=("tiny",)))
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=1800)
        assert done.returncode == 0, done.stderr
        assert before.items() <= trained_at(out).items()
        assert_same_table(out, table)


def assert_same_table(out: Path, table: Path) -> None:
    """Scores and translations are those of the table that was not killed, and nothing was trained
    beyond its end.
    """
    assert cells(out) == [cell for cell in cells(table) if cell["row"] == "tiny"]
    for kind in KINDS:
        folder = f"tiny-{kind}-seed1/test/hypotheses.txt"
        assert (out / folder).read_text() == (table / folder).read_text()
        log = (out / f"tiny-{kind}-seed1" / "train.log").read_text().split("\n")
        assert not [
            line
            for line in log
            if line.startswith("--- ") and f"from update {TABLE_UPDATES}," in line
        ]
    assert not list(out.rglob("*.part"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--subset", "train2"], "has no 'train2': give a --subset of test, train, valid"),
        (
            ["--processes", "3"],
            "an update of 512 tokens in mini-batches of 256 to 256 cannot be shared evenly by 3",
        ),
        (["--finished-only"], "is finished yet: there is nothing to tabulate"),
        (["--updates", "9", "--out", "TABLE"], f"options max_update: {TABLE_UPDATES}, now 9"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_trained(
    miniature: Path,
    table: Path,
    tmp_path: Path,
    more: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = snapshot(table)
    more = [str(table) if word == "TABLE" else word for word in more]
    line = [
        word
        for word in table_words(miniature, tmp_path)
        if word != "--cpu" or "--processes" not in more
    ]
    assert cli.main(["run-table", *line, *more]) == 2
    last = capsys.readouterr().err.strip().split("\n")[-1]
    assert message in last
    assert last.startswith("fairseq-mhe run-table: error: ")
    assert not list(tmp_path.glob("*/train.log"))
    assert snapshot(table) == before


def test_the_heading_says_where_it_is_no_result(miniature: Path) -> None:
    args = argparse.Namespace(title="WMT14")
    data = open_prepared(miniature)

    def heading(**updates: int) -> str:
        recipes = [recipe(row) for row in updates]
        return run_table._title(
            args,
            data,
            [
                replace(one, training=one.training.shortened(count))
                for one, count in zip(recipes, updates.values(), strict=True)
            ],
        )

    assert heading(base=100_000, big=300_000) == "WMT14, 100,000 to 300,000 updates"
    assert heading(tiny=1500) == "WMT14, 1,500 updates"
    told = "a rehearsal with fewer updates or other batches, no result"
    assert heading(base=1000, big=300_000) == f"WMT14, 1,000 to 300,000 updates: {told}"

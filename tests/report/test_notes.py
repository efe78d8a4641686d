"""What stands below a table tells of every run, and of each difference that hinders comparing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.report.notes import notes_below
from fairseq_mhe.report.results import gather, summarise
from fairseq_mhe.runs.job import Job

MakeRun = Callable[..., Job]


def change(path: Path, *names: str, to: Any) -> None:
    """Put a value into a JSON file."""
    whole = inner = json.loads(path.read_text())
    for name in names[:-1]:
        inner = inner[name]
    inner[names[-1]] = to
    write_json(path, whole)


def scored_by(run: Job, tokeniser: str) -> Path:
    path = run.subset("test") / "scores.json"
    path.write_text(path.read_text().replace("tok:13a", f"tok:{tokeniser}"))
    return run.folder


def below(*runs: Job) -> str:
    """The notes of the quickstart's table."""
    cells = gather(run.folder for run in runs)
    return "\n".join(notes_below(cells, summarise(cells), paper=False))


@pytest.mark.parametrize(("kind", "seed"), [("mha", 2), ("mhe_mul", 1)])
def test_scores_of_different_tokenisers_are_refused(
    make_run: MakeRun, kind: str, seed: int
) -> None:
    """Within a cell, too."""
    folders = [make_run("mha", 2).folder, scored_by(make_run(kind, 3, seed), "zh")]
    told = rf"{folders[1]} and {folders[0]} were scored with different BLEU tokenizer: "
    with pytest.raises(UserError, match=told):
        gather(folders)


def test_a_run_from_a_checkpoint_is_no_seed_of_one_from_scratch(make_run: MakeRun) -> None:
    runs = [make_run("mha", 3, seed) for seed in (1, 2)]
    change(runs[1].folder / "config.json", "settings", "start", to="a" * 64)
    for folders in (runs, runs[::-1]):
        with pytest.raises(UserError, match="differ by start, where seeds"):
            gather(run.folder for run in folders)
    change(runs[0].folder / "config.json", "settings", "start", to="b" * 64)
    gather(run.folder for run in runs)


def test_the_notes_are_of_all_cells(make_run: MakeRun) -> None:
    mha = [make_run("mha", wrong, seed) for seed, wrong in ((1, 3), (2, 4))]
    mhe = make_run("mhe_mul", 5)
    assert "Seeds: mha 1, 2; mhe_mul 1. " in below(*mha, mhe)
    change(mhe.metrics, "measured", to="on a GPU")
    change(mhe.subset("test") / "generation.json", "measured", to="by four")
    change(mha[0].folder / "config.json", "versions", to={"torch": "2.1"})
    change(mhe.folder / "config.json", "versions", to={"torch": "2.3"})
    text = below(mha[0], mhe)
    assert "Seeds: 1. torch 2.1 or 2.3." in text
    assert "median over the log, alone; on a GPU. " in text
    assert "own clock, alone; by four." in text


def test_different_training_is_noted(make_run: MakeRun) -> None:
    runs = [make_run(kind, 3) for kind in ("sha", "mha", "mhe_mul")]
    assert "otherwise" not in below(*runs)
    config = runs[2].folder / "config.json"
    change(config, "settings", "options", "max_update", to=100)
    change(config, "settings", "options", "lr", to=[1.0])
    change(config, "settings", "options", "bf16", to=True)
    told = "so compare with care: mhe_mul (max_update 100, lr [1.0], bf16 True)."
    assert f"Trained otherwise than mha, {told}" in below(*runs).split("\n")
    change(runs[0].folder / "config.json", "settings", "start", to="a" * 64)
    assert "compare with care: sha (start a checkpoint), mhe_mul (" in below(*runs)
    assert "otherwise" not in below(runs[1], make_run("mha", 3, row="base")), "of another row"


def test_other_data_is_noted(make_run: MakeRun) -> None:
    runs = [make_run(kind, 3) for kind in ("mha", "mhe_mul")]
    change(runs[1].folder / "config.json", "settings", "data", "fingerprint", to="1" * 64)
    assert (
        "Trained otherwise than mha, so compare with care: mhe_mul (data 11111111)."
        in below(*runs)
    )

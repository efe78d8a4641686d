"""The report of a study: files, headings, and the names of unfinished variants."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe.report.results import Cell, read_result
from fairseq_mhe.report.table import Table
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipes import recipe as recipe_of
from studies.report import report, write
from studies.variants import MHA, MHE, REFERENCE, Study, Variant, everywhere


def test_training_by_processes_is_reported_as_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--processes trains on the CPU, also on a machine with a GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("studies.report.machine", lambda device: {"device": device})
    args = argparse.Namespace(out=tmp_path, cpu=False, processes=2, typed=[])
    write(args, "trial", Table("A trial", [], []), {})
    assert json.loads((tmp_path / "trial.json").read_text())["facts"]["device"] == "cpu"


def test_the_report_compares_each_variant_with_its_reference(
    make_run: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {MHE: (12, 11, 12), MHA: (4, 5, 4), "sha": (11, 12, 12), "mqa": (18, 19, 18)}
    cells = {}
    for name, of_seeds in wrong.items():
        question = REFERENCE if name in (MHE, MHA) else "other"
        runs = [make_run(name, count, seed) for seed, count in enumerate(of_seeds, start=1)]
        results = tuple(read_result(run, "test") for run in runs)
        cells[Variant(name, question, everywhere(name), MHE)] = Cell("tiny", name, results)
    questions = {REFERENCE: "both", "other": "the others"}
    study = Study("trial", "A trial", questions, lambda args, recipe: list(cells), {})
    out, data = tmp_path / "out", tmp_path / "home-assistant"
    args = argparse.Namespace(out=out, data=data, subset="test", cpu=True, typed=["x"])
    report(study, recipe_of("tiny"), cells, ["el"], args)
    text = (args.out / "trial.md").read_text()
    assert capsys.readouterr().out == text
    assert text.startswith("# A trial: tiny, data home-assistant; seeds 1, 2, 3\n")
    assert "## other: the others" in text
    assert "Means over seeds 1, 2, 3; sd: the" in text
    assert "- Not finished, and left out: el.\n" in text
    results = json.loads((args.out / "trial.json").read_text())
    by_name = {summary["variant"]: summary for summary in results["variants"]}
    assert list(by_name) == [MHE, MHA, "sha", "mqa"]
    assert by_name["sha"]["compared_with"] == MHE
    expected = by_name[MHA]["bleu"] - by_name[MHE]["bleu"]
    assert by_name[MHA]["difference"] == pytest.approx(expected, abs=2e-4)
    assert by_name["sha"]["loss_difference"] == 0

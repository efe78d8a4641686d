"""The report of a study: Dunnett's test, differences, and the names of unfinished variants."""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy import stats

from fairseq_mhe.report.results import Cell, read_result
from fairseq_mhe.report.table import Table
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipes import recipe as recipe_of
from studies.report import dunnett, report, write
from studies.variants import MHA, MHE, REFERENCE, Study, Variant, everywhere

CONTROL = [20.1, 20.9, 20.4]


def test_p_values_of_dunnetts_own_example() -> None:
    """Blood counts under two drugs and without (Dunnett 1955): only the second differs at 1%."""
    control = [7.40, 8.50, 7.20, 8.24, 9.84, 8.32]
    drugs = [[9.76, 8.80, 7.68, 9.36], [12.80, 9.68, 12.16, 9.20, 10.55]]
    assert dunnett(drugs, control) == pytest.approx([0.62, 0.0059], abs=2e-3)


@pytest.mark.parametrize("sample", [CONTROL[:1], [20.0, math.nan, 20.1]])
def test_a_single_seed_and_a_diverged_training_have_no_p_value(sample: list[float]) -> None:
    assert dunnett([[19.0]], control=sample) == [None]
    of_sample, of_other = dunnett([sample, [19.5, 19.9, 19.1]], CONTROL)
    assert (of_sample is None) == (math.nan in sample)
    assert of_other is not None


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
    assert "bleu_p" not in by_name[MHE]
    bleus = {name: summary["bleu_of_seeds"] for name, summary in by_name.items()}
    compared = (MHA, "sha", "mqa")
    samples = (bleus[name] for name in compared)
    expected = stats.dunnett(*samples, control=bleus[MHE], random_state=0).pvalue
    for name, p_value in zip(compared, expected, strict=True):
        mean = sum(bleus[name]) / 3 - sum(bleus[MHE]) / 3
        assert by_name[name]["bleu_difference"] == pytest.approx(mean, abs=2e-4)
        assert by_name[name]["bleu_p"] == p_value
    assert by_name[MHA]["bleu_p"] < 0.01 < by_name["sha"]["bleu_p"]
    assert by_name["sha"]["loss_difference"] == 0

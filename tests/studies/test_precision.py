"""The study of bf16 against float32: the same settings, compared with the noise of seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.recipes import RECIPES
from fairseq_mhe.runs.run import Run
from studies.__main__ import main
from studies.precision import report, variants
from studies.study import Study


def test_both_kinds_are_trained_in_both() -> None:
    training = RECIPES["tiny"].training
    found = [replace(training, **variant.changes).precision for variant in variants()]
    assert found == ["float32", "float32", "bf16", "bf16"]
    assert [v.name for v in variants() if v.question == "reference"] == [
        "mha-float32",
        "mhe_mul-float32",
    ]


def test_the_report_tells_loss_from_noise(make_run: Callable[..., Run], tmp_path: Path) -> None:
    """Scores that differ by the seed alone, and of MHE-Mul by far more."""
    wrong = {"mha-float32": (4, 5, 4), "mhe_mul-float32": (4, 5, 5)}
    wrong |= {"mha-bf16": (5, 4, 5), "mhe_mul-bf16": (17, 18, 17)}
    done = {}
    for place, variant in enumerate(variants()):
        kind = ("mha", "mhe_mul", "mqa", "sha")[place]  # whose folders differ
        done[variant] = [make_run(kind, wrong[variant.name][n - 1], n) for n in (1, 2, 3)]
    for variant, runs in done.items():
        for run in runs:
            run.settings["attention"] = variant.attention
    data = DataFolder(tmp_path / "the data", ("en", "de"), {"steps": {}})
    study = Study(tmp_path / "out", data, "test", False, ["precision-study"])
    report(study, RECIPES["tiny"], done, []).write(study, show=False)
    found = json.loads((study.out / "precision.json").read_text())["variants"]
    mha, mhe = (summary["bleus_against_float32"] for summary in found[2:])
    assert mha["p_value"] > 0.05 > mhe["p_value"]
    assert mhe["difference"] < -10
    assert found[2]["losses_against_float32"]["difference"] == 0.0
    text = (study.out / "precision.md").read_text()
    assert "(8 degrees of freedom)" in text
    assert (study.out / "precision.png").read_bytes().startswith(b"\x89PNG")


def test_seeds_that_differ_more_than_the_others_are_named(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    wrong = [(4, 5, 4), (4, 5, 5), (5, 4, 5), (0, 18, 9)]
    done = {}
    for variant, kind, numbers in zip(
        variants(), ("mha", "mhe_mul", "mqa", "sha"), wrong, strict=True
    ):
        done[variant] = [make_run(kind, number, n) for n, number in enumerate(numbers, 1)]
        for run in done[variant]:
            run.settings["attention"] = variant.attention
    data = DataFolder(tmp_path / "the data", ("en", "de"), {"steps": {}})
    study = Study(tmp_path / "out", data, "test", False, ["precision-study"])
    notes = " ".join(report(study, RECIPES["tiny"], done, []).notes)
    assert "BLEU between seeds is" in notes
    assert "(6 degrees of freedom)" in notes
    assert "the seeds of mhe_mul-bf16 differ more than the others'" in notes
    assert "compared by Welch's t-test" in notes
    assert "over all four" not in notes


def test_its_own_question_is_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["precision-study", "--data", "d", "--out", str(tmp_path), "--precision", "bf16"]
    assert main(line) == 2
    assert "--precision is what this study varies: leave it out" in capsys.readouterr().err

"""The scores that a study compares: all by one tokeniser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.recipes import RECIPES
from fairseq_mhe.runs.run import Run
from studies import collaborative_curve, trainings, uptraining
from studies import study as shared
from studies.study import Study
from studies.trainings import REFERENCE, Variant, everywhere

NOTHING: Any = argparse.Namespace()


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "out", DataFolder(tmp_path, ("en", "de")), "test", False, [])


@pytest.fixture
def scored_by(make_run: Callable[..., Run]) -> Callable[..., Run]:
    """Makes a run that was scored with a tokeniser."""

    def make(kind: str, seed: int, tokeniser: str) -> Run:
        run = make_run(kind, 4, seed)
        scores = run.subset("test") / "scores.json"
        scores.write_text(scores.read_text().replace("tok:13a", f"tok:{tokeniser}"))
        run.steps.finish("score test", {}, 0.0)
        return run

    return make


def test_scores_are_by_one_tokeniser(study: Study, scored_by: Callable[..., Run]) -> None:
    by_intl, by_13a = scored_by("mha", 1, "intl"), scored_by("mha", 2, "13a")
    with pytest.raises(UserError, match=r"tokeniser 13a, .* with intl: score them alike"):
        study.check_alike([by_intl, by_13a])
    study.check_alike([by_intl])
    study.check_alike([by_13a, by_13a])


def test_so_are_those_to_come(
    study: Study, scored_by: Callable[..., Run], make_run: Callable[..., Run]
) -> None:
    """Else hours of training would end in a refusal."""
    to_come = make_run("mhe_mul", None)
    by_intl = scored_by("mha", 1, "intl")
    with pytest.raises(UserError, match="tokeniser intl, and the study's runs will be with 13a"):
        study.check_alike([to_come, by_intl])
    study.check_alike([scored_by("mha", 2, "13a"), to_come])
    study.check_alike([to_come])


def test_no_study_reports_scores_of_two_tokenisers(
    study: Study, scored_by: Callable[..., Run]
) -> None:
    mha, other = scored_by("mha", 1, "13a"), scored_by("mhe_mul", 1, "intl")
    variants = {Variant(r.kind, REFERENCE, everywhere(r.kind)): [r] for r in (mha, other)}
    recipe, ways = RECIPES["tiny"], {("mha", "from scratch"): [mha], ("mhe_mul", "x"): [other]}
    for report in (
        lambda: trainings._report(study, recipe, variants, NOTHING, show=False),
        lambda: uptraining._report(study, ways, NOTHING),
        lambda: collaborative_curve._report(study, mha, {"scratch": {16: other}}, NOTHING),
    ):
        with pytest.raises(UserError, match="score them alike"):
            report()


@pytest.mark.parametrize("name", ["trainings", "uptraining", "collaborative_curve"])
def test_nothing_is_trained_that_cannot_be_compared(
    name: str,
    study: Study,
    scored_by: Callable[..., Run],
    make_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mha, to_come = scored_by("mha", 1, "intl"), make_run("mhe_mul", None)
    monkeypatch.setattr(Study, "work", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr(devices, "asked_for", lambda *_: pytest.fail("it trains"))
    for module, function, found in (
        (shared, "open_study", study),
        (shared, "finished_run", mha),
        (uptraining, "_scratch", None),
        (uptraining, "_from_scratch", []),
        (uptraining, "_uptrained", to_come),
        (collaborative_curve, "_point", to_come),
    ):
        monkeypatch.setattr(module, function, lambda *_, found=found: found)
    chosen = {"attention": ["mhe_mul"], "control": False, "dims": [8], "series": ["scratch"]}
    args = argparse.Namespace(mha=None, seeds=[1], **chosen)
    variants = {Variant(r.kind, REFERENCE, everywhere(r.kind)): [r] for r in (mha, to_come)}
    begin = {
        "trainings": lambda: trainings._work(study, RECIPES["tiny"], variants, args, NOTHING),
        "uptraining": lambda: uptraining.run(args),
        "collaborative_curve": lambda: collaborative_curve.run(args),
    }
    with pytest.raises(UserError, match="tokeniser intl, and the study's runs will be with 13a"):
        begin[name]()

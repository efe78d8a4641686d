"""The scores that a study compares: all by one tokeniser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.recipes import RECIPES
from fairseq_mhe.runs.run import Run
from studies import collaborative_curve, trainings, uptraining
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

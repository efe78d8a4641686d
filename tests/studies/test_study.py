"""What studies share: runs that start from weights, a share of a recipe, and errors in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.recipes import RECIPES
from fairseq_mhe.runs.run import Run, open_run
from fairseq_mhe.runs.training import training_arguments
from studies import study
from studies.__main__ import main
from tests.fixtures.runs import TRAINING, settings


def test_a_run_that_starts_from_weights_says_so_to_fairseq(tmp_path: Path) -> None:
    start = tmp_path / "start.pt"
    torch.save({}, start)
    extra = {"options": ["--collaborative-dim", "16"], "start": "hash"}
    run = open_run(
        tmp_path / "run", {**settings("collaborative"), **extra}, {"data": "d", "start": str(start)}
    )
    data = DataFolder(tmp_path, ("en", "de"))
    words = training_arguments(run, data, Device(False, 1, 1))
    assert words[words.index("--collaborative-dim") + 1] == "16"
    assert words[words.index("--finetune-from-model") + 1] == str(start)
    plain = open_run(tmp_path / "plain", settings("mha"), {"data": "d"})
    assert "--finetune-from-model" not in training_arguments(plain, data, Device(False, 1, 1))


def test_share() -> None:
    short = study.share(
        replace(TRAINING, updates=1000, warmup_updates=100, average=3), 0.2, lr=0.01
    )
    assert (short.updates, short.warmup_updates, short.checkpoints, short.lr) == (200, 20, 5, 0.01)
    assert study.share(TRAINING, 0.0001, lr=None).updates == 1
    assert study.share(TRAINING, 0.5, lr=None).lr == TRAINING.lr


def test_a_share_of_a_training_that_patience_may_end_has_a_share_of_its_warm_up() -> None:
    """Else it would end before the warm-up does."""
    short = study.share(RECIPES["multi30k"].training, 0.1, lr=None)
    assert (short.updates, short.warmup_updates, short.patience) == (800, 200, 0)


def test_a_model_has_the_options_of_the_run_that_it_is_like(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    data = DataFolder(tmp_path, ("en", "de"))
    of_runs = study.Study(tmp_path / "out", data, "test", False, [])
    run = make_run("mha", None)
    plain = of_runs.model_of("plain", run, "mqa", TRAINING)
    assert "options" not in plain.settings
    run.settings["options"] = ["--attention-head-dim", "19"]
    wide = of_runs.model_of("wide", run, "mqa", TRAINING)
    assert wide.settings["options"] == ["--attention-head-dim", "19"]
    both = of_runs.model_of("both", run, "mqa", TRAINING, ["--collaborative-dim", "16"])
    assert both.settings["options"] == ["--attention-head-dim", "19", "--collaborative-dim", "16"]


def test_a_run_is_scored_in_a_folder_that_is_locked(
    make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = []

    def evaluate(run: Run, *_: object) -> None:
        with pytest.raises(UserError, match="another fairseq-mhe is at work"), only_one(run.folder):
            pass
        evaluated.append(run)

    monkeypatch.setattr(study, "evaluate", evaluate)
    data = DataFolder(tmp_path, ("en", "de"))
    run = make_run("mha", None)
    study.Study(tmp_path / "out", data, "test", False, []).score([run])
    assert evaluated == [run]


@pytest.mark.parametrize(
    ("scored", "told"), [(2, ""), (1, "training 1 models for 40 updates "), (0, "training 2 ")]
)
def test_work_tells_how_many_models_are_to_be_trained(
    make_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    scored: int,
    told: str,
) -> None:
    monkeypatch.setattr(study, "TableRun", lambda *_: SimpleNamespace(work=lambda device: None))
    runs = [make_run("mha", 3, seed) for seed in (1, 2)]
    for run in runs[:scored]:
        run.steps.finish("score test", {}, 0.0)
    data = DataFolder(tmp_path, ("en", "de"))
    study.Study(tmp_path / "out", data, "test", False, []).work(runs)
    error = capsys.readouterr().err
    assert error.startswith(told)
    assert bool(error) == bool(told)


@pytest.mark.parametrize("name", ["collaborative-curve --run", "uptrain --runs"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        *(("--fraction", value, "is no share of more than 0 and") for value in ("0", "-1", "1.5")),
        *(("--lr", value, "is no learning rate of more than 0") for value in ("0", "-1")),
        *((option, "nan", "'nan' is no ") for option in ("--fraction", "--lr")),
    ],
)
def test_further_training_that_cannot_be_is_refused_at_once(
    name: str, option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*name.split(), "no such folder", f"{option}={value}"])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["collaborative-curve", "--run", "RUN"], "is not finished: it has no model.pt"),
        (["uptrain", "--runs", "DIR", "--seeds", "1"], "is not finished: it has no model.pt"),
        (["uptrain", "--runs", "DIR", "--seeds", "9"], "is no run folder"),
        (["serving", "--run", "RUN"], "is not finished: it has no model.pt"),
    ],
)
def test_runs_that_are_not_there_are_one_line(
    make_run: Callable[..., Run],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    run = make_run("mha", 0)
    places = {"RUN": str(run.folder), "DIR": str(tmp_path)}
    assert main([places.get(word, word) for word in words] + ["--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"bash scripts/study.sh [a-z-]+: error: .*{message}.*\n", error)

"""A trained run's steps, each once: here its scores, which go with the target language."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.run import Run, open_run, plan_run
from tests.fixtures.runs import settings

DATA = DataFolder(Path("/data"), ("en", "de"), {"steps": {}})
ONE = Device(gpu=False, slots=1, threads=1)

LINES = "今天山里天气很好\n我们一起去看那些花草树木\n"


def test_scores_are_counted_as_the_target_language_is_written(tmp_path: Path) -> None:
    data = {"languages": ["en", "zh"], "fingerprint": "0" * 64}
    run = open_run(tmp_path / "r", {**settings(), "data": data}, {})
    for name in ("sources", "references", "hypotheses"):
        write_text(run.subset("test") / f"{name}.txt", LINES)
    run.steps.finish("generate test", {}, 0.0)
    for tokenise, expected in ((None, "zh"), ("char", "char")):
        pipeline.score(run, "test", tokenise)
        signature = read_json(run.subset("test") / "scores.json")["bleu"]["signature"]
        assert f"|tok:{expected}|" in signature
        assert pipeline.scored(run, "test", expected)
    assert pipeline.scored(run, "test")
    assert not pipeline.scored(run, "test", "zh")
    assert not pipeline.scored(run, "valid")


@pytest.mark.parametrize("trained_further", [False, True], ids=["training", "trained"])
def test_scores_of_a_shorter_training_are_not_those_of_the_longer(
    trained_further: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes further is not done before it is scored anew, wherever it is stopped."""
    short, long = (settings(updates=updates, patience=10) for updates in (50, 80))
    run = open_run(tmp_path / "r", short, {})
    run.steps.finish("train", run.settings, 1.0)
    for step in ("average", "generate test", "score test"):
        run.steps.finish(step, {}, 1.0)
    results = (run.model, run.metrics, run.counts, run.subset("test") / "scores.json")
    for path in results:
        write_json(path, {})
    assert pipeline.scored(run, "test")

    def train(runs: list[Run], *_: object) -> None:
        if trained_further:
            run.steps.finish("train", runs[0].settings, 1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.training, "train", train)
    further = plan_run(run.folder, long, {})
    with Board("updates") as board, pytest.raises(KeyboardInterrupt):
        pipeline.train([further], DATA, ONE, board)
    assert not pipeline.scored(plan_run(run.folder, long, {}), "test")
    # Its config.json says the longer one: who reads the folder now finds nothing of the shorter.
    assert not any(path.exists() for path in results)
    with pytest.raises(UserError, match="is not finished: it has no step 'average'"):
        further.key("average")


def test_a_run_that_is_trained_anew_forgets_what_the_lost_training_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was kept without its checkpoints, say, of which another subset is wanted."""
    run = open_run(tmp_path / "r", settings(), {})
    for step in ("train", "average", "generate test", "score test"):
        run.steps.finish(step, run.settings if step == "train" else {}, 1.0)
    write_json(run.subset("test") / "scores.json", {})

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.training, "train", stop)
    for checkpoint, there in ((True, True), (False, False)):
        if checkpoint:
            write_json(run.checkpoints / "checkpoint_last.pt", {})
        else:
            (run.checkpoints / "checkpoint_last.pt").unlink()
        with Board("updates") as board, pytest.raises(KeyboardInterrupt):
            pipeline.train([run], DATA, ONE, board)
        assert pipeline.scored(run, "test") is there


def test_a_run_of_no_updates_is_scored_where_patience_would_end_others(tmp_path: Path) -> None:
    run = open_run(tmp_path / "r", settings(updates=0, patience=10), {})
    run.steps.finish("score test", {}, 1.0)
    write_json(run.subset("test") / "scores.json", {})
    assert pipeline.scored(run, "test")


def test_new_translations_have_no_scores_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(tmp_path / "r", settings(), {})
    run.steps.finish("average", {}, 1.0)
    for name in ("scores.json", "comet.json"):
        write_json(run.subset("test") / name, {"score": 1.0})
    monkeypatch.setattr(pipeline.generation, "generate", lambda *_: None)
    with Board("sentences") as board:
        pipeline.translate(run, DATA, "test", ONE, board)
    assert [path.name for path in run.subset("test").iterdir()] == []

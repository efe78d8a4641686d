"""Studies from data to report: training once, conversions, and errors in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.runs.recipes import recipe as recipe_of
from studies.__main__ import main
from studies.study import training_of
from studies.variants import MHA, MHE, Variant, everywhere
from tests.fixtures.trained import TABLE_SIZE, snapshot

Words = Callable[..., list[str]]
pytestmark = pytest.mark.early


@pytest.fixture
def references(table: Path, tmp_path: Path) -> Path:
    """Make the folder of a study, with the references' runs as run-table trained them."""
    out = tmp_path / "a study"
    for kind in ("mha", "mhe_mul"):
        shutil.copytree(table / f"tiny-{kind}-seed1", out / f"tiny-{kind}-seed1")
    return out


@pytest.fixture
def words(miniature: Path) -> Words:
    """Return a maker of a study's command line: its name, its folder, more options; one seed."""

    def make(name: str, out: Path, *more: str) -> list[str]:
        line = [name, "--data", str(miniature), "--out", str(out), *TABLE_SIZE]
        return [*line, "--seeds", "1", *more]

    return make


def reports(out: Path, name: str) -> dict[str, Any]:
    """Check the report's three files, and return variant -> summary."""
    results = json.loads((out / f"{name}.json").read_text())
    text = (out / f"{name}.md").read_text()
    for fact in ("processor", "torch", "date", "command", "nrefs:1"):
        assert fact in text
    assert results["facts"]["command"].startswith("bash scripts/study.sh ")
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return {summary["variant"]: summary for summary in results["variants"]}


def test_finished_runs_of_run_table_are_not_trained_again(
    references: Path, words: Words, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reference that was trained again would have newer files."""
    out, before = references, snapshot(references)
    line = words("gap-study", out, "--only", "std-0.5")
    assert main([*line, "--finished-only"]) == 0
    assert "left out: std-0.5." in capsys.readouterr().out
    assert main(line) == 0
    screen = capsys.readouterr()
    assert screen.out == (out / "gap.md").read_text(), "printed once, at the end"
    assert before.items() <= snapshot(out).items()
    summaries = reports(out, "gap")
    assert list(summaries) == [MHE, MHA, "std-0.5"]
    assert summaries["std-0.5"]["loss_p"] is None, "one seed"
    run = out / "tiny-std-0.5-seed1"
    assert open_source(run / "model.pt").options["head_embedding_std"] == 0.5
    remaining = (run / "checkpoints").iterdir()
    assert [path.name for path in remaining] == ["checkpoint_last.pt"], "room for other variants"


def test_converted_models_are_scored_untrained_and_after_further_training(
    references: Path, words: Words, capsys: pytest.CaptureFixture[str]
) -> None:
    """At D = 128 the decomposition of four heads of width 32 is exact: the translations stay."""
    out = references
    line = words("collaborative-curve", out, "--dims", "128", "--iterations", "5")
    line += ["--sentences", "20", "--further", "0.25", "--only", "decomposed,fine-tuned"]
    assert main(line) == 0, capsys.readouterr().err
    summaries = reports(out, "collaborative-curve")
    assert list(summaries) == [MHA, "decomposed-D128", "fine-tuned-D128"]
    exact = out / "tiny-decomposed-D128-seed1" / "test" / "hypotheses.txt"
    assert exact.read_text() == (out / "tiny-mha-seed1/test/hypotheses.txt").read_text()
    assert summaries["decomposed-D128"]["bleu"] == summaries[MHA]["bleu"]
    assert summaries["decomposed-D128"]["loss"] is None
    start, tuned = (
        open_source(out / f"tiny-{name}-D128-seed1" / "model.pt")
        for name in ("decomposed", "fine-tuned")
    )
    assert tuned.options["collaborative_dim"] == 128
    assert tuned.state["optimizer_history"][-1]["num_updates"] == 1  # a quarter of 4
    before, after = start.model.state_dict(), tuned.model.state_dict()
    near = [(after[name] - value).abs().max() for name, value in before.items() if "proj" in name]
    assert max(near) < 0.1, "it must begin with the decomposed weights"
    times = snapshot(out)
    assert main(line) == 0
    again = {name for name, time in snapshot(out).items() if times.get(name) != time}
    assert again <= {f"collaborative-curve.{ending}" for ending in ("json", "md", "png")}
    assert main([*line, "--iterations", "6"]) == 2
    assert "was converted from another model or by other options" in capsys.readouterr().err


def test_uptraining_starts_from_a_converted_model(
    references: Path, words: Words, capsys: pytest.CaptureFixture[str]
) -> None:
    line = words("uptrain", references, "--attention", "mhe_mul,mqa", "--sentences", "20")
    assert main([*line, "--further", "0.25", "--only", "uptrained-mqa,further"]) == 0
    assert capsys.readouterr().out == (references / "uptraining.md").read_text()
    summaries = reports(references, "uptraining")
    assert list(summaries) == [MHA, "uptrained-mqa", "further-mha"]
    assert summaries["uptrained-mqa"]["kv_bytes_per_token"] < summaries[MHA]["kv_bytes_per_token"]
    log = (references / "tiny-uptrained-mqa-seed1" / "train.log").read_text()
    assert "'max_update': 1," in log, "a quarter of 4"


def test_a_share_of_a_training_shortens_warm_up_and_intervals() -> None:
    """A recipe with patience would keep its whole warm-up, longer than the shortened training."""
    fifth = Variant("fifth", "further", everywhere(MHA), MHA, {"dropout": 0.5, "x_y": 3}, 0.2)
    training = recipe_of("tiny").training
    training = training_of(training.shortened(1000).changed(keep_interval_updates=4), fifth)
    assert (training.updates, training.options["dropout"], training.options["x_y"]) == (200, 0.5, 3)
    assert (training.options["warmup_updates"], training.average) == (20, 3)
    training = training_of(recipe_of("multi30k").training, fifth)
    assert (training.updates, training.patience, training.average) == (1600, 0, 10)
    assert training.options["warmup_updates"] == 400


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["gap-study", "--row", "huge"], "unknown row 'huge'; choose one of: base"),
        (["gap-study", "--only", "nothing"], "--only nothing: unknown; choose from reference"),
        (["gap-study", "--user-dir", "nowhere"], "nowhere has no __init__.py: give the folder of"),
        (["gap-study", "--subset", "x"], "has no 'x': give a --subset of test, train, valid"),
        (["gap-study", "--finished-only"], "references are not finished: leave"),
        (["equal-budget", "--budget", "100"], "no kind of the row tiny comes within 1.0% of it"),
        (["serving", "--run", "nowhere"], "nowhere does not exist: give the path of"),
    ],
)
def test_bad_input_is_one_line(
    words: Words,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("FAIRSEQ_MHE_USER_DIR", "")  # --user-dir changes it
    name, *options = more
    line = [name, "--out", str(tmp_path)] if name == "serving" else words(name, tmp_path)
    with patch("fairseq_mhe.cli.sleep_sooner") as tuned:
        assert main([*line, *options]) == 2
    tuned.assert_called()
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("train.log"))

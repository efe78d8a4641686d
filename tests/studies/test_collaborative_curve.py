"""BLEU against D on a quickstart of 200 pairs: the exact width changes nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.run import Run
from studies import collaborative_curve as module
from studies.__main__ import main
from studies.study import Study
from tests.studies.checks import reports, twice


def test_collaborative_curve(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "curve"
    words = [
        "--dims",
        "128",
        "--series",
        "decomposed,fine-tuned",
        "--iterations",
        "5",
        "--sentences",
        "20",
    ]
    twice(["collaborative-curve", "--run", str(source), *words, "--fraction", "0.1"], out)
    found = reports(out, "collaborative-curve")
    assert set(found["bleu"]) == {"decomposed", "fine-tuned"}
    layers = found["conversions"]["128"]["layers"]
    assert len(layers) == 6
    assert all(
        0 < layer["error"] < 1e-9 and layer["seconds"] >= 0 for layer in layers
    )  # D = n d is exact
    exact = (out / "decomposed-D128-seed1" / "test" / "hypotheses.txt").read_text()
    assert exact == (source / "test" / "hypotheses.txt").read_text()
    start, tuned = (
        open_source(out / f"{name}-D128-seed1" / "model.pt")
        for name in ("decomposed", "fine-tuned")
    )
    assert (
        start.state["optimizer_history"][-1]["num_updates"],
        tuned.options["collaborative_dim"],
    ) == (20, 128)
    assert tuned.state["optimizer_history"][-1]["num_updates"] == 2  # a tenth of 20
    near = [
        (tuned.model.state_dict()[n] - v).abs().max()
        for n, v in start.model.state_dict().items()
        if "proj" in n
    ]
    assert max(near) < 0.1, "it did not begin with the decomposed weights"


def test_no_conversion_to_another_width_than_heads_can_share(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run", str(source), "--dims", "18", "--series", "mha", "--cpu"]
    assert main(["collaborative-curve", *words, "--out", str(tmp_path / "out")]) == 2
    assert "4 heads cannot share a key width of 18" in capsys.readouterr().err


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "out", DataFolder(tmp_path, ("en", "de")), "test", False, [])


@pytest.mark.parametrize(
    "options", [["--attention-head-dim", "19"], ["--encoder-attention-heads", "3"]]
)
def test_heads_that_are_not_the_rows_have_no_series_of_narrower_ones(
    study: Study, make_run: Callable[..., Run], options: list[str]
) -> None:
    run = make_run("mha", None)
    run.settings["options"] = options
    for dim in (64, 128):
        with pytest.raises(UserError, match=f"has heads of its own .{options[0]}.*leave mha out"):
            module._point(study, run, "mha", dim, argparse.Namespace())


def test_a_decomposed_run_is_not_one_that_patience_may_end(
    study: Study, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not trained at all, and has no such step."""
    run = make_run("mha", None)
    run.model.write_bytes(b"weights")
    run.settings["training"]["patience"] = 10
    monkeypatch.setattr(module, "_decomposed", lambda *_: run.model)
    args: Any = argparse.Namespace(fraction=0.1, lr=None)
    point = module._point(study, run, "decomposed", 16, args)
    (point.subset("test")).mkdir()
    (point.subset("test") / "scores.json").touch()
    point.steps.finish("score test", {}, 0.0)
    assert pipeline.scored(point, "test")

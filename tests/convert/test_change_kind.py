"""Smaller kinds start from a trained model: nothing is lost needlessly, and fit beats the mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.convert.fit import MEAN
from fairseq_mhe.convert.fold import fold
from tests.fixtures.checkpoints import save, trained
from tests.fixtures.models import logits, make_model

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


def convert(kind: str, source: Path, output: Path, *words: str) -> None:
    assert cli.main(["convert", "--to", kind, str(source), str(output), *words]) == 0


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("method", ["fit", "mean"])
@pytest.mark.parametrize("kind", ["mqa", "gqa", "mhe_add"])
def test_an_mha_that_is_of_the_kind_already_loses_nothing(
    make_source: Callable[..., Source], tmp_path: Path, kind: str, method: str, bias: bool
) -> None:
    """A model of the kind, folded to MHA, is the kind again."""
    source = make_source(attention=kind, attention_bias=bias, **ONE_LAYER)
    fold(source, tmp_path / "mha.pt")
    convert(kind, tmp_path / "mha.pt", tmp_path / "out.pt", "--method", method)
    made = open_source(tmp_path / "out.pt")
    assert set(made.attention.values()) == {kind}
    torch.testing.assert_close(logits(made.model), logits(source.model), rtol=0, atol=2e-4)


def test_mhe_mul_by_its_mean_loses_nothing_either(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    source = make_source(attention="mhe_mul")
    fold(source, tmp_path / "mha.pt")
    convert("mhe_mul", tmp_path / "mha.pt", tmp_path / "out.pt", "--method", "mean")
    torch.testing.assert_close(
        logits(open_source(tmp_path / "out.pt").model), logits(source.model), rtol=0, atol=2e-4
    )


def test_gqa_with_every_head_its_own_is_the_model_itself(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    source = make_source(attention="mha", attention_bias=True)
    for method in ("fit", "mean"):
        convert(
            "gqa", source.path, tmp_path / f"{method}.pt", "--kv-heads", "4", "--method", method
        )
        made = open_source(tmp_path / f"{method}.pt")
        torch.testing.assert_close(logits(made.model), logits(source.model), rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("kind", "bias"),
    [
        *((kind, True) for kind in MEAN),
        *((kind, False) for kind in ("mhe_mul", "mhe_add", "mqa", "gqa")),
    ],
)
def test_on_trained_weights_least_squares_lose_less_than_means(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], kind: str, bias: bool
) -> None:
    options = {"attention": "mha", "attention_bias": bias, **ONE_LAYER}
    path = save(tmp_path / "a.pt", trained(**options), **options)
    convert(kind, path, tmp_path / "out.pt", "--data", str(data), "--json")
    report = json.loads(capsys.readouterr().out)
    losses = {method: tried["loss"] for method, tried in report["tried"].items()}
    assert report["method"] == min(losses, key=losses.__getitem__) == "fit"
    assert report["loss_before"] < losses["fit"] + 0.1
    made = open_source(tmp_path / "out.pt")
    assert made.state["fairseq_mhe"]["method"] == "fit"
    assert logits(made.model).isfinite().all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "mha"], "choose one of: mhe_mul, mhe_add, mqa, gqa"),
        (["--to", "collaborative"], "to-collaborative"),
        (["--to", "mqa", "--kv-heads", "2"], "--kv-heads has no effect on mqa"),
        (["--to", "gqa", "--kv-heads", "3"], "kv_heads 3 does not divide num_heads 4"),
        (["--to", "mqa", "--method", "best"], "needs --data"),
        (["--to", "mqa", "--data", "nowhere"], "nowhere is no data folder"),
    ],
)
def test_bad_options_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    path = save(tmp_path / "a.pt", make_model(attention="mha"), attention="mha")
    assert cli.main(["convert", *words, str(path), str(tmp_path / "out.pt")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]


def test_an_output_that_cannot_be_is_said_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "a.pt", make_model(attention="mha"), attention="mha")
    (tmp_path / "out").mkdir()
    assert cli.main(["convert", "--to", "mqa", str(path), str(tmp_path / "out")]) == 2
    assert "it is no file, and only files are replaced" in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"a.pt", "out"}

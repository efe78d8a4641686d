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


@pytest.mark.parametrize(
    ("kind", "method", "bias"),
    [
        *((kind, "fit", bias) for kind in ("mqa", "gqa", "mhe_add") for bias in (False, True)),
        *((kind, "mean", True) for kind in ("mqa", "gqa", "mhe_add", "mhe_mul")),
    ],
)
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


def test_gqa_with_every_head_its_own_is_the_model_itself(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    source = make_source(attention="mha", attention_bias=True, **ONE_LAYER)
    for method in ("fit", "mean"):
        out = tmp_path / f"{method}.pt"
        convert("gqa", source.path, out, "--kv-heads", "4", "--method", method)
        made = open_source(out)
        assert made.options["attention_kv_heads"] == 4
        torch.testing.assert_close(logits(made.model), logits(source.model), rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", MEAN)
def test_on_trained_weights_least_squares_lose_less_than_means(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    options = {"attention": "mha", "attention_bias": True, **ONE_LAYER}
    path, out = save(tmp_path / "a.pt", trained(**options), **options), tmp_path / "out.pt"
    reports = {}
    for method in ("mean", "fit"):
        convert(kind, path, out, "--data", str(data), "--method", method, "--json")
        reports[method] = json.loads(capsys.readouterr().out)
    fit = reports["fit"]
    assert fit["loss_before"] - 0.1 < fit["loss"] < reports["mean"]["loss"]
    made = open_source(out)
    assert made.state["fairseq_mhe"]["method"] == fit["method"] == "fit"
    assert logits(made.model).isfinite().all()
    convert(kind, path, out, "--data", str(data))
    losses = f"loss {fit['loss']:.4f} (source: {fit['loss_before']:.4f}) nats/token"
    assert losses in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "mha"], "mhe_mul"),
        (
            ["--to", "mqa", "--kv-heads", "2"],
            "--attention-kv-heads has no effect on --attention",
        ),
        (["--to", "gqa", "--kv-heads", "3"], "kv_heads 3 does not divide num_heads 4"),
        (["--to", "mqa", "--data", "nowhere"], "nowhere is no data folder"),
    ],
)
def test_bad_options_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    path = save(tmp_path / "a.pt", make_model(attention="mha"), attention="mha")
    try:
        status = cli.main(["convert", *words, str(path), str(tmp_path / "out.pt")])
    except SystemExit as error:  # argparse
        status = error.code
    assert status == 2
    assert message in capsys.readouterr().err.rstrip("\n").split("\n")[-1]
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize(
    ("output", "message"), [("out", "it is no file"), ("./a.pt", "is the input")]
)
def test_an_output_that_cannot_be_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, message: str
) -> None:
    path = save(tmp_path / "a.pt", make_model(attention="mha"), attention="mha")
    before = path.read_bytes()
    (tmp_path / "out").mkdir()
    assert cli.main(["convert", "--to", "mqa", str(path), f"{tmp_path}/{output}"]) == 2
    assert message in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"a.pt", "out"}
    assert path.read_bytes() == before

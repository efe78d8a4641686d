"""A collaborative model is exact for D = n d, near for less, and fairseq-train goes on from it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fairseq_mhe
from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.models.build import sublayers
from tests.fixtures.checkpoints import flat_options, save, stir, trained
from tests.fixtures.models import logits, make_model, same_hypotheses
from tests.fixtures.processes import fairseq

WIDTH = 16  # n d of the small models
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
MIXED = {
    "encoder_attention": "gqa",
    "decoder_attention": "mhe_mul",
    "cross_attention": "mhe_add",
}


def convert(source: Path, output: Path, dim: int, *words: str) -> None:
    assert (
        cli.main(["to-collaborative", "--dim", str(dim), str(source), str(output), *words]) == 0
    )


@pytest.mark.parametrize(
    ("learned", "options"),
    [
        (False, {"attention": "mha"}),
        (False, {"attention": "gqa", "attention_bias": True}),
        (True, {"attention": "mha", "attention_bias": True}),
        (True, {**MIXED, "attention_bias": True, **ONE_LAYER}),
        (True, {"attention": "mha", "cross_attention": "mqa", "attention_head_dim": 4}),
    ],
)
def test_it_is_exact_for_all_dimensions(
    make_source: Callable[..., Source], tmp_path: Path, learned: bool, options: dict[str, Any]
) -> None:
    source = make_source(learned=learned, **options)
    convert(source.path, tmp_path / "out.pt", WIDTH)
    made = open_source(tmp_path / "out.pt")
    assert set(made.attention.values()) == {"collaborative"}
    torch.testing.assert_close(logits(made.model), logits(source.model), rtol=0, atol=1e-4)
    assert same_hypotheses(made.model, source.model)


def test_a_stock_checkpoint_with_its_biases(tmp_path: Path) -> None:
    model = stir(make_model(arch="transformer"))
    options = {**flat_options(), "_name": "transformer", "arch": "transformer"}
    torch.save({"cfg": {"model": options}, "model": model.state_dict()}, tmp_path / "stock.pt")
    convert(tmp_path / "stock.pt", tmp_path / "out.pt", WIDTH + 3)  # more add nothing
    made = open_source(tmp_path / "out.pt")
    assert all(module.content_proj is not None for _, _, module in sublayers(made.model))
    torch.testing.assert_close(logits(made.model), logits(model), rtol=0, atol=1e-4)


def test_fewer_dimensions_lose_more(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"attention": "mha", **ONE_LAYER}
    path = save(tmp_path / "a.pt", trained(**options), **options)
    reports = []
    for dim in (2, 6, 12):
        words = ["--data", str(data), "--sentences", "20", "--json"]
        convert(path, tmp_path / f"{dim}.pt", dim, *words)
        reports.append(json.loads(capsys.readouterr().out))
    for few, more in itertools.pairwise(reports):
        assert few["logits"]["largest"] > more["logits"]["largest"]
        assert all(
            f["error"] > m["error"] > 0
            for f, m in zip(few["layers"], more["layers"], strict=True)
        )
    assert all(report["loss"] > 0 for report in reports)
    assert open_source(tmp_path / "6.pt").options["collaborative_dim"] == 6


def test_fairseq_train_goes_on_from_it(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the flags that the command prints; one update at a rate of nothing changes nothing."""
    options = {"attention": "mha", "attention_bias": True}
    path, out = save(tmp_path / "a.pt", trained(**options), **options), tmp_path / "out.pt"
    convert(path, out, 10, "--data", str(data), "--sentences", "20")
    printed = capsys.readouterr().out
    assert (
        len(re.findall(r"^\| \S+attn *\| *[0-9.e-]+ \| *\d+ \| *[0-9.]+ \|$", printed, re.M))
        == 6
    )
    pattern = r"go on with: fairseq-train DATA-BIN --user-dir fairseq_mhe (.*) \.\.\."
    flags = re.search(pattern, printed)[1].split()
    words = "--cpu --optimizer adam --lr 1e-30 --criterion cross_entropy --max-tokens 200"
    words += f" --max-update 1 --num-workers 0 --user-dir {Path(fairseq_mhe.__file__).parent}"
    run = tmp_path / "run"
    done = fairseq("train", str(data), *words.split(), *flags, "--save-dir", str(run))
    assert done.returncode == 0, done.stderr[-2000:]
    trained_on = open_source(run / "checkpoint_last.pt")
    # The old training's updates do not count.
    assert trained_on.state["optimizer_history"][-1]["num_updates"] == 1
    torch.testing.assert_close(logits(trained_on.model), logits(open_source(out).model))

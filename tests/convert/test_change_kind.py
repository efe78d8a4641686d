"""A model converted to a smaller kind loses little, and fairseq-train continues from it;
collaborative attention is exact for D = n d.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fairseq_mhe
from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.convert.change_kind import TARGETS, convert
from fairseq_mhe.convert.compare import open_material
from tests.fixtures.checkpoints import fold_source, save, trained
from tests.fixtures.models import logits, same_hypotheses
from tests.fixtures.processes import fairseq

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
WIDTH = 16  # n d of the small models
MIXED = {"encoder_attention": "gqa", "decoder_attention": "mhe_mul", "cross_attention": "mhe_add"}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["mqa", "gqa"])
def test_a_fold_converted_back_to_its_kind_is_exact(
    make_source: Callable[..., Source], tmp_path: Path, kind: str, bias: bool
) -> None:
    """Red if the fit of a kind misses heads that the kind can represent."""
    source = make_source(attention=kind, attention_bias=bias, **ONE_LAYER)
    fold_source(source, tmp_path / "mha.pt")
    material = open_material(open_source(tmp_path / "mha.pt"), None, 1)
    convert(tmp_path / "out.pt", kind, material)
    converted = open_source(tmp_path / "out.pt")
    assert set(converted.attention.values()) == {kind}
    assert converted.state["fairseq_mhe"]["loss"] is None, "a loss on random words"
    torch.testing.assert_close(logits(converted.model), logits(source.model), rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", TARGETS)
def test_trained_weights_lose_little(
    make_source: Callable[..., Source], tmp_path: Path, data: Path, kind: str
) -> None:
    source = make_source(learned=True, attention="mha", attention_bias=True, **ONE_LAYER)
    material = open_material(source, data, 1000)
    report = convert(tmp_path / "out.pt", kind, material)
    # An untrained model loses 0.4.
    assert report["loss"] == pytest.approx(report["loss_before"], abs=0.06)
    converted = open_source(tmp_path / "out.pt")
    assert material.loss(converted.model) == pytest.approx(report["loss"])
    facts = converted.state["fairseq_mhe"]
    assert (facts["made_by"], facts["weighted_by"]) == ("convert", str(data))


@pytest.mark.parametrize(
    ("learned", "options"),
    [
        (False, {"attention": "mha"}),
        (True, {**MIXED, "attention_bias": True, **ONE_LAYER}),
        (True, {"attention": "mha", "cross_attention": "mqa", "attention_head_dim": 3}),
    ],
)
def test_collaborative_attention_of_full_width_is_exact(
    make_source: Callable[..., Source], tmp_path: Path, learned: bool, options: dict[str, Any]
) -> None:
    source = make_source(learned=learned, **options)
    material = open_material(source, None, 1)
    convert(tmp_path / "out.pt", "collaborative", material, collaborative_dim=WIDTH)
    converted = open_source(tmp_path / "out.pt")
    assert set(converted.attention.values()) == {"collaborative"}
    torch.testing.assert_close(logits(converted.model), logits(source.model), rtol=0, atol=1e-4)
    assert same_hypotheses(converted.model, source.model)


def test_fairseq_train_continues_from_a_converted_model(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fairseq-train gets the flags that the command prints, and a learning rate of almost 0."""
    options = {"attention": "mha", "attention_bias": True}
    path, out = save(tmp_path / "a.pt", trained(**options), **options), tmp_path / "my out.pt"
    words = ["--collaborative-dim=10", "--data", str(data), "--sentences", "20"]
    assert cli.main(["convert", "--to", "collaborative", str(path), str(out), *words]) == 0
    printed = capsys.readouterr().out
    errors = re.findall(r"^\| \S+attn *\| *([0-9.e-]+) \| *\d+ \|$", printed, re.M)
    assert len(errors) == 6
    assert all(0 < float(error) < 1 for error in errors)
    pattern = r"train further: fairseq-train DATA-BIN --user-dir fairseq_mhe (.*) \.\.\."
    flags = shlex.split(re.search(pattern, printed)[1])
    words = "--cpu --optimizer adam --lr 1e-30 --criterion cross_entropy --max-tokens 200"
    words += " --max-update 1 --num-workers 0"
    run = tmp_path / "run"
    folders = ["--user-dir", Path(fairseq_mhe.__file__).parent, "--save-dir", run]
    done = fairseq("train", data, *words.split(), *flags, *folders)
    assert done.returncode == 0, done.stderr[-2000:]
    trained_on = open_source(run / "checkpoint_last.pt")
    # Updates of the earlier training do not count.
    assert trained_on.state["optimizer_history"][-1]["num_updates"] == 1
    torch.testing.assert_close(logits(trained_on.model), logits(open_source(out).model))

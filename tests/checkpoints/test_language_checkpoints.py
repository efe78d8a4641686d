"""``fold`` and ``convert`` accept checkpoints of language models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import load_by_fairseq, open_source
from fairseq_mhe.checkpoints.inspection import inspect
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.models.counting import costs, total_parameters
from tests.fixtures import checkpoints, language
from tests.fixtures.language import ADAPTIVE, FAMILIES, LM, ROBERTA, make_random, sentences
from tests.fixtures.models import make_dictionary

TOKENS = sentences(longest=9)
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])


def save(path: Path, arch: str, model: nn.Module, **options: Any) -> Path:
    """Save a ``make_language_model(arch, **options)`` in the format of fairseq-train."""
    stored = {**language.language_options(arch, **options), "_name": arch}
    if "roberta" not in arch:
        stored.pop("arch")
    task = {"_name": "masked_lm" if "roberta" in arch else "language_modeling"}
    task |= {"tokens_per_sample": 32, "add_bos_token": False, "max_target_positions": 32}
    return checkpoints.save(path, model, cfg={"model": stored, "task": task})


def make_checkpoint(path: Path, arch: str, **options: Any) -> Path:
    return save(path, arch, make_random(arch, **options), **options)


def logits(model: nn.Module) -> Tensor:
    with torch.inference_mode():
        return model(TOKENS)[0][TOKENS.ne(make_dictionary().pad())]


def by_fairseq(path: Path) -> nn.Module:
    source = open_source(path)
    with quiet_fairseq():
        return load_by_fairseq(path, source.task())


@pytest.mark.parametrize("kind", ["mhe_mul", "el"])
@each_family
def test_a_fold_is_fairseqs_own_model(family: tuple, kind: str, tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "in.pt", family[0], attention=kind)
    cli.main(["fold", str(path), str(tmp_path / "out.pt")])
    folded = by_fairseq(tmp_path / "out.pt")
    assert type(folded).__module__.startswith("fairseq.")
    torch.testing.assert_close(logits(folded), logits(by_fairseq(path)), rtol=0, atol=2e-5)


@pytest.mark.parametrize("scale", ["heads", "resids", "attn", "fc"])
def test_scales_that_fairseq_loses_are_not_folded(tmp_path: Path, scale: str, capsys: Any) -> None:
    path = make_checkpoint(tmp_path / "in.pt", LM[0], **{f"scale_{scale}": True})
    assert cli.main(["fold", str(path), str(tmp_path / "out.pt")]) == 2
    assert "has no stock form: fairseq's own model loses" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["convert --to mhe_mul", "convert --to collaborative --collaborative-dim 16"]
)
@each_family
def test_a_stock_checkpoint_is_converted(
    family: tuple, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorly")
    path, out = make_checkpoint(tmp_path / "stock.pt", family[1]), tmp_path / "out.pt"
    assert cli.main([*line.split(), str(path), str(out), "--data", "text"]) == 2
    assert "--data is for translation models, but" in capsys.readouterr().err
    cli.main([*line.split(), str(path), str(out)])
    assert f"--arch {family[0]}_" in capsys.readouterr().out
    converted = by_fairseq(out)
    assert type(converted).__name__.endswith("MHEModel")
    if "collaborative" in line:  # exact at this width
        torch.testing.assert_close(logits(converted), logits(by_fairseq(path)), rtol=0, atol=1e-3)


def test_a_fold_keeps_trained_classification_heads(tmp_path: Path) -> None:
    model: Any = make_random(ROBERTA[0])
    model.register_classification_head("sentence_classification_head", num_classes=3)
    path = save(tmp_path / "in.pt", ROBERTA[0], model)
    cli.main(["fold", str(path), str(tmp_path / "out.pt")])
    folded = torch.load(tmp_path / "out.pt")["model"]
    name = "classification_heads.sentence_classification_head.out_proj.weight"
    assert torch.equal(folded[name], model.state_dict()[name])


def test_weights_of_adaptive_softmax_count_once_but_multiply_twice(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "in.pt", LM[0], **ADAPTIVE)
    model = open_source(path).model
    assert inspect(path)["parameters"] == total_parameters(model)
    apart = dict.fromkeys(("tie_adaptive_weights", "tie_adaptive_proj"), False)
    other = make_random(LM[0], **{**ADAPTIVE, **apart})
    assert costs(model, 1, 1)["rest"].target == costs(other, 1, 1)["rest"].target

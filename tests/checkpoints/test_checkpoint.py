"""Checkpoints of stock Transformers and ours load as models, and models are saved again."""

import argparse
from pathlib import Path

import pytest
import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.checkpoints.checkpoint import load_by_fairseq, open_source, save_model
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import sublayers
from tests.fixtures.checkpoints import flat_options, save, stir
from tests.fixtures.models import logits, make_model


def same_logits(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return torch.allclose(logits(one), logits(other), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_our_checkpoint_loads_with_its_kind_and_logits(tmp_path: Path, kind: str) -> None:
    model = stir(make_model(attention=kind))
    source = open_source(save(tmp_path / "a.pt", model, attention=kind))
    assert source.attention == dict.fromkeys(("encoder", "decoder", "cross"), kind)
    assert source.vocab_sizes == (44, 44)
    assert same_logits(source.model, model)
    places = [place for _, place, _ in sublayers(source.model)]
    assert places == ["encoder", "encoder", "decoder", "cross", "decoder", "cross"]


@pytest.mark.parametrize("old", [False, True], ids=["cfg", "args"])
def test_a_stock_checkpoint_loads_with_its_logits(tmp_path: Path, old: bool) -> None:
    """fairseq-train writes options as ``cfg``; before it used hydra, it wrote ``args``."""
    model = stir(make_model(arch="transformer"))
    names = dict.fromkeys(("arch", "_name"), "transformer")
    options = flat_options(encoder_embed_path="embeddings that are gone", **names)
    args = argparse.Namespace(left_pad_source=False, **options) if old else None
    state = {"args": args, "cfg": {"model": options}, "model": model.state_dict()}
    torch.save(state, tmp_path / "a.pt")
    source = open_source(tmp_path / "a.pt")
    assert source.options["_name"] == "transformer"
    assert set(source.attention.values()) == {"mha"}
    assert same_logits(source.model, model)
    save_model(source, source.options, model.state_dict(), tmp_path / "b.pt", {})
    assert same_logits(load_by_fairseq(tmp_path / "b.pt", source.task()), model)
    task = open_source(tmp_path / "b.pt").state["cfg"]["task"]
    assert task.get("left_pad_source", True) is not old


def test_sizes_that_a_checkpoint_lacks_come_from_its_architecture(tmp_path: Path) -> None:
    """An old checkpoint of a named architecture may lack the sizes."""
    args = argparse.Namespace(arch="transformer_iwslt_de_en", share_all_embeddings=True)
    model = make_model(arch="transformer", **sizes("iwslt").options())
    torch.save({"args": args, "model": model.state_dict()}, tmp_path / "a.pt")
    assert same_logits(open_source(tmp_path / "a.pt").model, model)


def test_a_saved_model_loads_by_fairseq_and_has_its_provenance(tmp_path: Path) -> None:
    model, path = stir(make_model(attention="gqa")), tmp_path / "b.pt"
    source = open_source(save(tmp_path / "a.pt", model, updates=9, attention="gqa"))
    weights = source.model.state_dict()
    save_model(source, source.options, weights, path, {"made_by": "a test"})
    assert same_logits(load_by_fairseq(path, source.task()), source.model)
    saved = open_source(path)
    assert saved.options == source.options
    record = saved.state["fairseq_mhe"]
    assert (record["made_by"], record["source"]["name"]) == ("a test", "a.pt")
    assert saved.state["optimizer_history"][-1]["num_updates"] == 9


def test_a_weight_that_is_not_finite_is_rejected_by_name(tmp_path: Path) -> None:
    model = make_model(attention="mhe_mul")
    with torch.no_grad():
        model.decoder.layers[0].fc1.bias[1] = torch.nan
    path = save(tmp_path / "diverged.pt", model, attention="mhe_mul")
    with pytest.raises(UserError, match=r"diverged.pt: the weight decoder.layers.0.fc1.bias is"):
        open_source(path)

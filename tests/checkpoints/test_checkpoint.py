"""Checkpoints of stock Transformers and ours load as models, and models are saved again."""

import argparse
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS
from fairseq_mhe.checkpoints.checkpoint import load_by_fairseq, open_source, save_model
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.options import sublayers
from tests.fixtures.checkpoints import flat_options, save, stir
from tests.fixtures.models import BOTH_SIDES, logits, make_model
from tests.fixtures.processes import fairseq


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


HISTORY = [{"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}]
HISTORY[0] |= {"lr_scheduler_state": {}, "num_updates": 7}


def of_fairseq_0_8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with one projection for queries, keys and values in each sublayer."""
    old = dict(weights)
    for name in weights:
        sublayer, q_proj, parameter = name.rpartition(".q_proj.")
        if q_proj:
            parts = [old.pop(f"{sublayer}.{x}_proj.{parameter}") for x in "qkv"]
            old[f"{sublayer}.in_proj_{parameter}"] = torch.cat(parts)
    return old


def test_a_checkpoint_of_fairseq_0_8_is_read(tmp_path: Path, data: Path) -> None:
    """Its attention has in_proj_weight, and the data of its options are a list."""
    model = stir(make_model(arch="transformer"))
    args = argparse.Namespace(
        arch="transformer", task="translation", data=[str(data)], **BOTH_SIDES
    )
    args.source_lang, args.target_lang = "en", "de"
    weights = of_fairseq_0_8(model.state_dict())
    assert "encoder.layers.0.self_attn.in_proj_bias" in weights
    path = tmp_path / "old.pt"
    torch.save({"args": args, "model": weights, "optimizer_history": HISTORY}, path)
    source = open_source(path)
    assert same_logits(source.model, model)
    folded = tmp_path / "folded.pt"
    assert cli.main(["fold", str(path), str(folded), "--data", str(data)]) == 0
    assert same_logits(load_by_fairseq(folded, source.task()), model)
    to_mqa = ["convert", "--to", "mqa", str(path), str(tmp_path / "mqa.pt")]
    assert cli.main([*to_mqa, "--data", str(data)]) == 0
    to_ctranslate2 = ["to-ctranslate2", str(path), "--out", str(tmp_path / "ct2")]
    assert cli.main([*to_ctranslate2, "--data", str(data)]) == 0


def test_a_checkpoint_of_fairseq_0_8_can_be_finetuned(tmp_path: Path, data: Path) -> None:
    """A training of no updates keeps the weights."""
    model = stir(make_model(arch="transformer"))
    args = argparse.Namespace(arch="transformer", task="translation", **BOTH_SIDES)
    weights = of_fairseq_0_8(model.state_dict())
    extra = {"extra_state": {"train_iterator": {"epoch": 1}}, "optimizer_history": HISTORY}
    torch.save({"args": args, "model": weights, **extra}, tmp_path / "old.pt")
    sizes = [f"--{name.replace('_', '-')}={n}" for name, n in BOTH_SIDES.items() if n is not True]
    words = "--user-dir fairseq_mhe --arch transformer_mhe_base --attention mha --attention-bias"
    words += " --share-all-embeddings --optimizer adam --lr 0 --max-update 1 --batch-size 20 --cpu"
    words += f" --finetune-from-model {tmp_path}/old.pt --save-dir {tmp_path}/save"
    done = fairseq("train", data, *words.split(), *sizes)
    assert done.returncode == 0, done.stderr
    saved = read_checkpoint(tmp_path / "save/checkpoint_last.pt")["model"]
    assert torch.equal(
        saved["decoder.layers.1.encoder_attn.k_proj.weight"],
        model.decoder.layers[1].encoder_attn.k_proj.weight,
    )


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

"""``inspect`` describes a checkpoint; its counts equal those of the model."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.average import average_checkpoints
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.checkpoints.inspection import describe, inspect
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.counting import attention_parameters, total_parameters
from tests.fixtures.checkpoints import fold_source, save
from tests.fixtures.models import make_model

MIXED = {"attention": "mhe_mul", "decoder_attention": "gqa", "attention_kv_heads": 2}


@pytest.mark.parametrize("half", [None, torch.float16, torch.bfloat16])
def test_counts_and_kinds_are_those_of_the_model(tmp_path: Path, half: torch.dtype | None) -> None:
    model = make_model(**MIXED)
    summary = inspect(save(tmp_path / "a.pt", model, updates=123, half=half, **MIXED))
    assert summary["kinds"] == {"encoder": "mhe_mul", "decoder": "gqa", "cross": "mhe_mul"}
    assert summary["options"] == {"attention_kv_heads": 2}
    assert summary["parameters"] == total_parameters(model)
    assert sum(summary["attention_parameters"].values()) == attention_parameters(model)
    first = model.encoder.layers[0].self_attn
    assert summary["attention_parameters"]["encoder"] == 2 * total_parameters(first)
    assert summary["updates"] == 123
    assert summary["dtypes"] == [str(half or torch.float32).removeprefix("torch.")]
    assert not summary["resumable"]


@pytest.mark.parametrize("tied", ["share_all_embeddings", "share_decoder_input_output_embed", None])
def test_tied_tables_count_once(tmp_path: Path, tied: str | None) -> None:
    options = {"attention": "mha", "share_all_embeddings": False} | ({tied: True} if tied else {})
    model = make_model(**options)
    path = save(tmp_path / "a.pt", model, **options)
    state = torch.load(path)
    # A checkpoint saved from a GPU holds a copy of each tied table.
    state["model"] = {name: value.clone() for name, value in state["model"].items()}
    torch.save(state, path)
    assert inspect(path)["parameters"] == total_parameters(model)


@pytest.mark.parametrize("changed", [{}, {"decoder_normalize_before": False}])
def test_the_row_and_its_differences_are_shown(tmp_path: Path, changed: dict[str, bool]) -> None:
    options = {"_name": "transformer_mhe_tiny", "attention": "mha", **sizes("tiny").options()}
    options |= changed
    torch.save({"cfg": {"model": options}, "model": {"w": torch.ones(2)}}, tmp_path / "a.pt")
    summary = inspect(tmp_path / "a.pt")
    shown = "tiny, but decoder_normalize_before False" if changed else "tiny"
    assert describe(summary)["row"] == shown
    assert summary["row_differences"] == changed


def test_the_commands_that_made_a_checkpoint_are_shown(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", make_model(attention="mqa"), attention="mqa")
    average_checkpoints([path], tmp_path / "average.pt")
    for name, folded in (("average.pt", "folded.pt"), ("folded.pt", "again.pt")):
        fold_source(open_source(tmp_path / name), tmp_path / folded)
    summary = inspect(tmp_path / "again.pt")
    assert summary["kinds"] == dict.fromkeys(("encoder", "decoder", "cross"), "mha")
    assert summary["averaged_from"] == ["model.pt"]
    steps = "fold from folded.pt (mha)", "fold from average.pt (mqa)"
    assert describe(summary)["made by"] == ", that by ".join(steps)
    assert summary["versions"]["torch"] == metadata.version("torch")


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "model.pt", make_model(**MIXED), **MIXED)
    assert cli.main(["inspect", str(tmp_path)]) == 0, "a run folder"
    assert "gqa" in capsys.readouterr().out
    assert cli.main(["inspect", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["kinds"]["decoder"] == "gqa"

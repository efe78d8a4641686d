"""Options whose value cannot work are refused at the start; one that can, works to the end."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from rich.console import Console

from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.progress import Board
from fairseq_mhe.models.optimizer import AdamMHE
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import training
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.processes import Child
from fairseq_mhe.runs.run import open_run
from tests.fixtures.models import make_model
from tests.fixtures.runs import settings


def test_a_model_that_was_trained_with_some_layers_is_loaded_again() -> None:
    """fairseq would prune what has these layers only, and miss them."""
    options = {"encoder_layers_to_keep": "1", "decoder_layers_to_keep": "0"}
    trained = make_model(attention="mhe_mul", seed=1, **options)
    again = make_model(attention="mhe_mul", seed=2, **options)
    cfg = OmegaConf.create({"_name": "transformer_mhe_base", **options})
    again.load_state_dict(trained.state_dict(), model_cfg=cfg)
    for name, value in trained.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("value", ["x", "", ",", "0,x", "-1", "2", "0,0", "1.0", "9" * 5000])
def test_layers_that_are_none_are_refused(side: str, value: str) -> None:
    with pytest.raises(ErrorExit, match=f"--{side}-layers-to-keep .*: give numbers from 0 to 1, "):
        make_model(attention="mha", **{f"{side}_layers_to_keep": value})


@pytest.mark.parametrize("decay", [-1.0, float("nan"), float("inf")])
def test_a_decay_that_lets_weights_grow_is_refused(decay: float) -> None:
    cfg = SimpleNamespace(head_embedding_weight_decay=decay)
    with pytest.raises(ErrorExit, match=r"--head-embedding-weight-decay \S+: give 0 or more"):
        AdamMHE(cfg, make_model(attention="mhe_mul").parameters())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["train.log", "metrics.json", "model.pt", "counts.json"])
def test_a_folder_in_a_results_place_is_said_before_training(tmp_path: Path, name: str) -> None:
    run = open_run(tmp_path / "r", settings(), {})
    (run.folder / name).mkdir()
    data = DataFolder(Path("/data"), ("en", "de"), {"steps": {}})
    board = Board("updates", console=Console(file=io.StringIO()))
    with pytest.raises(UserError, match=rf"{name}: it is a folder, and only a file is"), board:
        training.train([run], data, Device(False, 1, 1), board)


def test_a_folder_in_a_logs_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(UserError, match="log: it is a folder, and only a file is replaced"):
        Child("fairseq_cli.train", [], tmp_path / "log", threads=1)

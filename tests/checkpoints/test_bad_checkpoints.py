"""Every command refuses malicious, truncated and foreign checkpoints and leaves nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairseq_mhe import cli
from tests.checkpoints.test_safe_load import Malicious
from tests.fixtures.checkpoints import flat_options, save
from tests.fixtures.models import make_model

#: Every command that reads a checkpoint, with IN, OUT and DATA to be filled in.
COMMANDS = {
    "inspect": ["inspect", "IN"],
    "fold": ["fold", "IN", "OUT"],
    "convert": ["convert", "--to", "mqa", "IN", "OUT"],
    "to-collaborative": ["to-collaborative", "--dim", "8", "IN", "OUT"],
    "to-ctranslate2": ["to-ctranslate2", "IN", "--data", "DATA", "--out", "OUT"],
    "average": ["average", "IN", "--output", "OUT"],
}


@pytest.fixture
def refuse(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, Path], str]:
    """Runs a command, sees that it fails in one line and leaves nothing, and returns the line."""

    def refuse(command: str, path: Path) -> str:
        before = set(tmp_path.iterdir())
        places = {"IN": str(path), "OUT": str(tmp_path / "out"), "DATA": str(data)}
        assert cli.main([places.get(word, word) for word in COMMANDS[command]]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith(f"fairseq-mhe {command}: error: ")
        assert printed.err.count("\n") == 1
        assert printed.out == ""
        assert set(tmp_path.iterdir()) == before
        return printed.err

    return refuse


@pytest.mark.parametrize("command", COMMANDS)
def test_a_malicious_pickle_is_not_run(
    command: str, refuse: Callable[[str, Path], str], tmp_path: Path
) -> None:
    path, proof = tmp_path / "bad.pt", tmp_path / "it-ran"
    state = {
        "cfg": {"model": flat_options()},
        "model": make_model().state_dict(),
        "extra_state": Malicious(proof),
    }
    torch.save(state, path)
    assert "foreign code" in refuse(command, path)
    torch.load(path, weights_only=False)
    assert proof.exists(), "the checkpoint is harmless, so that this test proves nothing"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_truncated_checkpoint(
    command: str, refuse: Callable[[str, Path], str], tmp_path: Path
) -> None:
    whole = save(tmp_path / "whole.pt", make_model(attention="mha"), attention="mha").read_bytes()
    path = tmp_path / "half.pt"
    path.write_bytes(whole[: len(whole) // 2])
    assert "half.pt is truncated or no fairseq checkpoint" in refuse(command, path)


def foreign(path: Path, what: str) -> Path:
    """A readable file that is no Transformer of ours or fairseq's."""
    model = make_model(attention="mha").state_dict()
    cfg = {"model": flat_options(attention="mha")}
    contents = {
        "lstm": {
            "args": argparse.Namespace(arch="lstm_wiseman_iwslt_de_en"),
            "model": {"encoder.lstm": torch.ones(1)},
        },
        "no options": {"model": model},
        "language model": {"cfg": {"model": {"_name": "fconv_lm"}}, "model": model},
        "no encoder": {
            "cfg": cfg,
            "model": {n: v for n, v in model.items() if not n.startswith("encoder")},
        },
        "half of its weights": {
            "cfg": cfg,
            "model": {n: v for n, v in model.items() if ".self_attn." not in n},
        },
        "other sizes": {
            "cfg": {"model": {**cfg["model"], "encoder_attention": "mqa"}},
            "model": model,
        },
        "an unknown kind": {"cfg": {"model": {**cfg["model"], "attention": "mla"}}, "model": model},
    }
    torch.save(contents[what], path)
    return path


WHY = {
    "lstm": "architecture 'lstm_wiseman_iwslt_de_en'",
    "no options": "architecture None",
    "language model": "architecture 'fconv_lm'",
    "no encoder": "no token embeddings",
    "half of its weights": "is absent in the checkpoint",
    "other sizes": "the checkpoint is not of this model",
    "an unknown kind": "unknown attention 'mla'",
}


@pytest.mark.parametrize("what", WHY)
@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("inspect", "average")]
)
def test_a_foreign_checkpoint(
    command: str, what: str, refuse: Callable[[str, Path], str], tmp_path: Path
) -> None:
    path = foreign(tmp_path / "foreign.pt", what)
    line = refuse(command, path)
    assert WHY[what] in line
    assert str(path) in line

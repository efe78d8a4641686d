"""Every command refuses malicious, truncated and foreign checkpoints and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_mhe import cli
from fairseq_mhe.common.errors import ErrorExit
from fairseq_mhe.models.families import make_task
from tests.checkpoints.test_safe_load import Malicious
from tests.fixtures.checkpoints import flat_options
from tests.fixtures.models import make_model

State = dict[str, Any]

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


def of_another_kind(**options: Any) -> Callable[[State], None]:
    """Changes options of the model, and no weight."""
    return lambda state: state["cfg"]["model"].update(options)


def without(part: str) -> Callable[[State], None]:
    """Takes away the weights whose names have ``part``."""

    def change(state: State) -> None:
        state["model"] = {name: w for name, w in state["model"].items() if part not in name}

    return change


#: How a checkpoint is changed -> what the line says then.
FOREIGN: dict[str, tuple[Callable[[State], object], str]] = {
    "options as text": (lambda state: state.update(cfg="transformer"), "no fairseq checkpoint"),
    "a weight of text": (
        lambda state: state["model"].update(w="heavy"),
        "no fairseq checkpoint",
    ),
    "no options": (lambda state: state.pop("cfg"), "architecture None"),
    "lstm": (of_another_kind(_name="lstm"), "architecture 'lstm'"),
    "half of its weights": (without(".self_attn."), "Missing key"),
    "other sizes": (of_another_kind(encoder_attention="mqa"), "is not of this model"),
    "an unknown kind": (of_another_kind(attention="mlp"), "unknown attention 'mlp'"),
    "heads as text": (
        of_another_kind(encoder_attention_heads="four"),
        "no model can be made of",
    ),
    "no heads": (of_another_kind(decoder_attention_heads=0), "must both be positive"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_checkpoint(
    what: str, refuse: Callable[[str, Path], str], tmp_path: Path
) -> None:
    """By one command for all that make a model of it, and by fairseq's own loader."""
    path, (change, why) = tmp_path / "foreign.pt", FOREIGN[what]
    state = {
        "cfg": {"model": flat_options(attention="mha")},
        "model": make_model(attention="mha").state_dict(),
    }
    change(state)
    torch.save(state, path)
    line = refuse("fold", path)
    assert why in line
    assert str(path) in line
    with pytest.raises(ErrorExit, match=str(path)) as refused:
        checkpoint_utils.load_model_ensemble([str(path)], task=make_task(44))
    assert str(refused.value).isprintable()

"""No option of a checkpoint is executed as code, however fairseq reads it."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_mhe.checkpoints.checkpoint import load_by_fairseq, open_source
from fairseq_mhe.common.errors import UserError
from tests.fixtures.checkpoints import save
from tests.fixtures.models import make_model

State = dict[str, Any]
CUTOFF = "adaptive_softmax_cutoff"


def plain(state: State, code: str) -> None:
    state["cfg"]["model"][CUTOFF] = code


def reference(state: State, code: str) -> None:
    """OmegaConf resolves the reference after all checks of the model's options."""
    state["cfg"]["model"][CUTOFF] = "${common.seed}"
    state["cfg"]["common"]["seed"] = code


def both(state: State, code: str) -> None:
    """fairseq reads the old form of the options (``args``) if both forms are there."""
    model = {**state["cfg"]["model"], "arch": "transformer_mhe_tiny", CUTOFF: code}
    state["args"] = Namespace(**model, task="translation", criterion="cross_entropy")


def another_family(state: State, code: str) -> None:
    """fconv evaluates as code what other models read as numbers."""
    options: dict[str, Any] = {"arch": "fconv", "task": "translation", "dropout": 0.1}
    options |= {"criterion": "cross_entropy", "share_input_output_embed": None}
    options |= {"encoder_embed_dim": 8, "decoder_embed_dim": 8, "decoder_out_embed_dim": 8}
    options |= {"encoder_layers": code, "decoder_layers": "[(8, 3)]", "decoder_attention": "True"}
    options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    options |= {"max_source_positions": 99, "max_target_positions": 99}
    state["cfg"], state["args"] = None, Namespace(**options)


@pytest.mark.parametrize("hide", [plain, reference, both, another_family])
@pytest.mark.parametrize("stock", [False, True])
def test_code_is_rejected_and_not_executed(
    tmp_path: Path, hide: Callable[[State, str], None], stock: bool
) -> None:
    ran = tmp_path / "ran"
    path = save(tmp_path / "evil.pt", make_model(attention="mha"), attention="mha")
    task = open_source(path).task()
    state = torch.load(path)
    state["extra_state"] = {"train_iterator": {"epoch": 1}}
    state["cfg"].setdefault("common", {})
    if stock:
        state["cfg"]["model"]["_name"] = "transformer"
    hide(state, f"open({str(ran)!r}, 'w').close() or 10")
    torch.save(state, path)
    for load in (open_source, lambda path: load_by_fairseq(path, task)):
        with pytest.raises(UserError, match=r"evil\.pt") as error:
            load(path)
        assert "\n" not in str(error.value)
        assert not ran.exists()

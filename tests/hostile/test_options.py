"""Options whose value cannot work are refused at the start; one that can, works to the end."""

from __future__ import annotations

import torch
from omegaconf import OmegaConf

from tests.fixtures.models import make_model


def test_a_model_that_was_trained_with_some_layers_is_loaded_again() -> None:
    """fairseq would prune what has these layers only, and miss them."""
    options = {"encoder_layers_to_keep": "1", "decoder_layers_to_keep": "0"}
    trained = make_model(attention="mhe_mul", seed=1, **options)
    again = make_model(attention="mhe_mul", seed=2, **options)
    cfg = OmegaConf.create({"_name": "transformer_mhe_base", **options})
    again.load_state_dict(trained.state_dict(), model_cfg=cfg)
    for name, value in trained.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name

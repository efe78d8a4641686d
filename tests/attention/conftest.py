"""Layers and inputs that every attention test uses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairseq_mhe.attention import KINDS, Attention, build_attention

EMBED_DIM, HEADS, MEMORY_DIM = 24, 4, 24
PLACES = ("encoder", "decoder", "cross")


def make_layer(
    kind: str, place: str = "encoder", *, dtype: torch.dtype = torch.float64, **options
) -> Attention:
    """A layer with weights large enough that every one of them matters to the output."""
    torch.manual_seed(7)
    layer = build_attention(
        kind,
        options.pop("embed_dim", EMBED_DIM),
        options.pop("num_heads", HEADS),
        self_attention=place != "cross",
        encoder_decoder_attention=place == "cross",
        **options,
    ).to(dtype)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    return layer.eval()


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Normal numbers, the same for the same seed."""
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def right_padding(batch: int, length: int) -> Tensor:
    """(B, S): sentence b ends b positions early."""
    return torch.arange(length).expand(batch, length) >= (length - torch.arange(batch)).unsqueeze(1)


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of attention there is."""
    return request.param


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    """Every place in a Transformer where attention sits."""
    return request.param

"""The least work there is: multiply-adds, and bytes of weights and cache that have to be read, for one repetition."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.bench.attention import STEP_PLACES
from fairseq_mhe.bench.settings import DTYPES, INT8, STOCK, Settings
from fairseq_mhe.bench.workload import Cell
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.cost import attention_work, costs
from fairseq_mhe.models.counting import cache_bytes, total_parameters

#: The backward pass multiplies twice for each product of the forward pass.
_TRAINING = 3


@dataclass(frozen=True)
class Floor:
    """Multiply-adds of matrix products, and bytes that no implementation can leave unread."""

    multiply_adds: float
    bytes: float


def floor(variant: str, settings: Settings, cell: Cell, facts: dict[str, Any]) -> Floor | None:
    """The floor of one repetition; stock fairseq's is MHA's. None with 8-bit integers, CTranslate2's or ours.

    Padding is taken as if it cost nothing in training, and as tokens elsewhere, where it is less
    than a tenth.

    Args:
        variant: as workloads have it.
        settings: of the run.
        cell: what was measured.
        facts: of the training benchmark, for what its batches hold.
    """
    if variant.endswith(INT8):
        return None
    model = _model("mha" if variant == STOCK else variant, settings.row, settings.vocabulary)
    width = DTYPES[cell["dtype"]].itemsize
    if settings.bench == "attention":
        return _of_attention(model, cell, width)
    if settings.bench == "training":
        return _of_training(model, facts, width)
    return _of_generation(model, cell, width)


def limits(own: Floor | None, mha: Floor) -> dict[str, Any]:
    """The floor as the results have it: how many times as fast as MHA if nothing but it counted."""
    if own is None:
        return {}
    return {
        "multiply_adds": own.multiply_adds,
        "bytes": own.bytes,
        "arithmetic_limit": mha.multiply_adds / own.multiply_adds,
        "traffic_limit": mha.bytes / own.bytes,
    }


@functools.cache
def _model(attention: str, row: str, vocabulary: int) -> nn.Module:
    return build_on_meta(row, attention, vocabulary)


def _of_attention(model: nn.Module, cell: Cell, width: int) -> Floor:
    """Forward and backward of one call, or one step of decoding: the weights, the input and what is kept of it."""
    length, batch = cell["length"], cell["batch"]
    steps = cell["place"] in STEP_PLACES
    named: str = cell["place"]
    place = STEP_PLACES.get(named, named)
    attention = _sublayer(model, place)
    work, weights = attention_work(attention), sum(p.numel() for p in attention.parameters())
    past = (length + 1) / 2 if place == "decoder" else length
    pairs = length * past
    adds = batch * (length * (work.query + work.key) + pairs * work.pair)
    if not steps:
        sides = 1 if attention.self_attention else 2
        numbers = weights + batch * length * (sides * attention.embed_dim + attention.cached_values)
        return Floor(_TRAINING * adds, numbers * width)
    if not attention.self_attention:
        weights -= work.key  # read once: what projects a key position is one multiply-add a weight
    return Floor(adds / length, (weights + batch * past * attention.cached_values) * width)


def _sublayer(model: Any, place: str) -> Attention:
    if place == "encoder":
        return model.encoder.layers[0].self_attn
    layer = model.decoder.layers[0]
    return (
        layer.self_attn if place == "decoder" else layer.encoder_attn
    )  # the last layer's cross-attention too


def _of_training(model: nn.Module, facts: dict[str, Any], width: int) -> Floor:
    """Updates on batches: the weights, to which what is read of gradients and Adam's moments is proportional."""
    sources, targets, sentences = facts["source_tokens"], facts["units"], facts["sentences"]
    parts = costs(model, round(sources / sentences), (targets / sentences + 1) / 2).values()
    adds = sum(part.source * sources + part.target * targets for part in parts)
    return Floor(_TRAINING * adds, facts["updates"] * total_parameters(model) * width)


def _of_generation(model: Any, cell: Cell, width: int) -> Floor:
    """A whole search: the encoder's weights once; every step the decoder's, and all that is cached by then."""
    source, length, rows = cell["source_length"], cell["length"], cell["batch"] * cell["beam"]
    past = (length + 1) / 2
    parts = costs(model, source, past).values()
    adds = sum(part.source * source * cell["batch"] + part.target * length * rows for part in parts)
    once = sum(attention_work(layer.encoder_attn).key for layer in model.decoder.layers)
    embedding = (
        model.decoder.embed_tokens.weight.numel()
    )  # the output projection's too, read whole every step
    encoder = total_parameters(model.encoder) - embedding
    decoder = total_parameters(model.decoder)
    kept = cache_bytes(model, 1)
    cache = cell["batch"] * kept.per_source_token * source + rows * kept.per_target_token * past
    return Floor(adds, (encoder + once + length * (decoder - once + cache)) * width)

"""The work of a sublayer, measured as bytes written and operators called, not as seconds."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.filters import TAPS
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import Operators, fast, make_layer, random

WIDTH, HEADS, SENTENCES, BEAM, PAST = 256, 8, 2, 3, 60
ROWS = SENTENCES * BEAM
FLOAT_BYTES = 4


def storage_bytes(cache: Any) -> int:
    """Return the bytes of a cache's tensors, shared memory once."""
    tensors = [leaf for leaf in tree_leaves(vars(cache)) if isinstance(leaf, Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def numbers(*shape: int) -> Tensor:
    return random(*shape, dtype=torch.float32)


@torch.no_grad()
def after_many_steps(kind: str, place: str) -> tuple[Attention, dict[str, Any]]:
    """Return a sublayer whose cache has ``PAST`` positions, and its arguments besides the query."""
    layer = make_layer(kind, dtype=torch.float32, embed_dim=WIDTH, num_heads=HEADS)
    layer = fast(layer, place)
    arguments: dict[str, Any] = {"incremental_state": {}, "need_weights": False}
    if place == "cross":
        memory = numbers(PAST, SENTENCES, WIDTH)
        arguments |= {"key": memory, "value": memory, "static_kv": True}
        layer(numbers(1, ROWS, WIDTH), **arguments)
    else:
        layer(numbers(PAST, ROWS, WIDTH), attn_mask=CausalMask(PAST), **arguments)
    return layer, arguments


@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_mhe_decodes_as_multi_query_attention(place: str) -> None:
    """Red if a step calls operators for the head embeddings."""
    counts = {}
    for kind in ("mqa", "mhe_mul", "mhe_add"):
        layer, arguments = after_many_steps(kind, place)
        counts[kind] = len(work_of_a_step(layer, arguments).written)
    assert counts["mhe_mul"] == counts["mqa"]
    assert counts["mhe_add"] <= counts["mqa"]


@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_keys_that_are_the_input_cost_no_product(place: str) -> None:
    layer = fast(make_layer("el"), place)
    assert {name for name, _ in layer.named_parameters()} == {"q_proj.weight", "out_proj.weight"}


@torch.no_grad()
def work_of_a_step(layer: Attention, arguments: dict[str, Any]) -> Operators:
    query = numbers(1, ROWS, WIDTH)
    with Operators() as work:
        layer(query, **arguments)
    return work


@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_a_decoding_step_writes_the_longer_cache_and_the_scores_but_no_heads(
    kind: str, place: str
) -> None:
    layer, arguments = after_many_steps(kind, place)
    work = work_of_a_step(layer, arguments)
    cache = layer._get_input_buffer(arguments["incremental_state"])
    rows, _, keys, key_width = cache.key.shape
    widest = max(key_width, cache.value.size(3))
    parts = TAPS if hasattr(layer, "taps") else 1  # a filter multiplies queries by its taps
    # Scores, queries or heads; mha_dconv computes them for earlier inputs, too.
    positions = 1 if cache.earlier is None else 1 + 2 * len(cache.earlier)
    bound = ROWS * HEADS * parts * max(keys, positions * widest)
    if place == "decoder":
        bound = max(bound, cache.key.numel(), cache.value.numel())
    written = max(work.written)
    assert written <= bound * FLOAT_BYTES
    if cache.value.size(1) == 1:
        assert written < HEADS * widest * rows * keys * FLOAT_BYTES
    weights = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    for tensor in work.kernel_inputs:  # no input holds copies of key or value heads
        storage = tensor.untyped_storage()
        limit = max(bound * FLOAT_BYTES, storage_bytes(cache), layer.out_proj.weight.nbytes)
        assert storage.data_ptr() in weights or storage.nbytes() <= limit


def test_a_reorder_writes_exactly_the_cache(kind: str) -> None:
    layer, arguments = after_many_steps(kind, "decoder")
    state, order = arguments["incremental_state"], torch.tensor([0, 0, 1, 4, 3, 3])
    with Operators() as work:
        layer.reorder_incremental_state(state, order)
    cache = layer._get_input_buffer(state)
    size = storage_bytes(cache)
    earlier = 0 if cache.earlier is None else cache.earlier.numel()
    cached = make_layer(kind, embed_dim=WIDTH, num_heads=HEADS).cached_values
    assert size == (ROWS * PAST * cached + earlier) * FLOAT_BYTES
    assert sum(n for n in work.written if n > order.numel() * order.element_size()) == size

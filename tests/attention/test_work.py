"""The work of a decoding step, measured as bytes written and operators called, not as seconds."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import Operators, fast, make_layer, random

WIDTH, HEADS, SENTENCES, BEAM, PAST = 256, 8, 2, 3, 60
ROWS = SENTENCES * BEAM
FLOAT_BYTES = 4
both_places = pytest.mark.parametrize("place", ["decoder", "cross"])


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


@torch.no_grad()
def bytes_of_a_step(layer: Attention, arguments: dict[str, Any]) -> list[int]:
    with Operators() as work:
        layer(numbers(1, ROWS, WIDTH), **arguments)
    return work.written


@both_places
def test_mhe_decodes_as_multi_query_attention(place: str) -> None:
    """Red if a step calls operators for the head embeddings."""
    counts = {
        kind: len(bytes_of_a_step(*after_many_steps(kind, place)))
        for kind in ("mqa", "mhe_mul", "mhe_add")
    }
    assert counts["mhe_mul"] == counts["mqa"]
    assert counts["mhe_add"] <= counts["mqa"]


@both_places
def test_keys_that_are_the_input_cost_no_product(place: str) -> None:
    layer = fast(make_layer("el"), place)
    assert {name for name, _ in layer.named_parameters()} == {"q_proj.weight", "out_proj.weight"}


@both_places
def test_a_step_copies_no_shared_head(kind: str, place: str) -> None:
    layer, arguments = after_many_steps(kind, place)
    largest = max(bytes_of_a_step(layer, arguments))
    cache = arguments["incremental_state"][layer]
    for cached in (cache.key, cache.value):  # (B, Hk, S, d)
        if cached.size(1) == 1:
            assert largest < HEADS * cached.numel() * FLOAT_BYTES


def test_a_reorder_writes_exactly_the_numbers_that_the_kind_says_to_cache(kind: str) -> None:
    layer, arguments = after_many_steps(kind, "decoder")
    state, order = arguments["incremental_state"], torch.tensor([0, 0, 1, 4, 3, 3])
    with Operators() as work:
        layer.reorder_incremental_state(state, order)
    tensors = [leaf for leaf in tree_leaves(vars(state[layer])) if isinstance(leaf, Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    size = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    earlier = state[layer].earlier  # of filters
    extra = 0 if earlier is None else earlier.numel()
    cached = make_layer(kind, embed_dim=WIDTH, num_heads=HEADS).cached_values
    assert size == (ROWS * PAST * cached + extra) * FLOAT_BYTES
    assert sum(n for n in work.written if n > order.numel() * order.element_size()) == size

"""The work of a sublayer, measured as bytes written and operators called, not as seconds."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import EMBED_DIM, Operators, make_layer, random

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
    arguments: dict[str, Any] = {"incremental_state": {}, "need_weights": False}
    if place == "cross":
        memory = numbers(PAST, SENTENCES, WIDTH)
        arguments |= {"key": memory, "value": memory, "static_kv": True}
        layer(numbers(1, ROWS, WIDTH), **arguments)
    else:
        layer(numbers(PAST, ROWS, WIDTH), attn_mask=CausalMask(PAST), **arguments)
    return layer, arguments


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
    queries = layer.queries(numbers(1, 1, WIDTH)).shape[3:].numel()  # 3 parts of a key in mhe_conv
    parts = max(1, queries // key_width)
    # Scores, queries or heads; a kind with a context computes them for earlier inputs, too.
    bound = ROWS * HEADS * parts * max(keys, widest, (1 + 2 * layer.context) * widest)
    if place == "decoder":
        bound = max(bound, cache.key.numel(), cache.value.numel())
    if kind == "sha":  # sha writes the sum of W_O's blocks
        bound = max(bound, WIDTH * layer.head_dim)
    if kind == "tucker":  # tucker writes the matrices of its heads
        bound = max(bound, HEADS * layer.head_dim**2)
    assert max(work.written) <= bound * FLOAT_BYTES
    if cache.value.size(1) == 1:
        assert max(work.written) < HEADS * widest * rows * keys * FLOAT_BYTES
    weights = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    for tensor in work.kernel_inputs:  # no input holds copies of key or value heads
        storage = tensor.untyped_storage()
        limit = max(bound * FLOAT_BYTES, storage_bytes(cache))
        assert storage.data_ptr() in weights or storage.nbytes() <= limit


def test_a_reorder_writes_exactly_the_cache(kind: str) -> None:
    layer, arguments = after_many_steps(kind, "decoder")
    state, order = arguments["incremental_state"], torch.tensor([0, 0, 1, 4, 3, 3])
    with Operators() as work:
        layer.reorder_incremental_state(state, order)
    cache = layer._get_input_buffer(state)
    size = storage_bytes(cache)
    earlier = ROWS * layer.context * WIDTH
    assert size == (ROWS * PAST * layer.cached_values + earlier) * FLOAT_BYTES
    assert sum(n for n in work.written if n > order.numel() * order.element_size()) == size


@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_generation_computes_only_once_what_depends_on_weights_alone(place: str) -> None:
    """A step of MHE-Mul calls as many operators as one of multi-query attention.

    MHE-Add calls two more, which add its embeddings to the queries and to the heads.
    """
    counts = {}
    for kind in ("mqa", "mhe_mul", "mhe_add"):
        layer, arguments = after_many_steps(kind, place)
        layer.make_generation_fast_()
        work_of_a_step(layer, arguments)  # the first step computes what later steps reuse
        counts[kind] = len(work_of_a_step(layer, arguments).written)
    assert counts["mhe_mul"] == counts["mqa"]
    assert counts["mhe_add"] == counts["mqa"] + 2


@torch.no_grad()
def test_fast_generation_gives_the_same_output_with_the_same_parameters(
    kind: str, place: str, gpu: bool
) -> None:
    layer = make_layer(kind, bias=True)
    x = random(5, 3, EMBED_DIM)
    y = random(7, 3, EMBED_DIM, seed=1) if place == "cross" else x
    before = dict(layer.state_dict())
    expected, weights = layer(x, y, y, need_head_weights=True)
    layer.make_generation_fast_()
    for _ in range(2):
        out, same_weights = layer(x, y, y, need_head_weights=True)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(same_weights, weights, rtol=0, atol=1e-12)
    after = layer.state_dict()
    assert list(after) == list(before) == [name for name, _ in layer.named_parameters()]
    assert all(torch.equal(after[name], before[name]) for name in before)

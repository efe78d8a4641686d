"""How much a sublayer writes, in bytes and operators rather than seconds, so that no loss of speed
hides.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.attention.kernel import CausalMask
from tests.attention.conftest import EMBED_DIM, make_layer, random

WIDTH, HEADS, SENTENCES, BEAM, PAST = 256, 8, 2, 3, 60
ROWS = SENTENCES * BEAM
FLOAT = 4


class Work(TorchDispatchMode):
    """Counts operators that are no views, the bytes they write to new memory, and what attention
    kernels were given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0
        self.written: list[int] = []
        self.kernel_inputs: list[Tensor] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in ("bmm", "baddbmm") or "scaled_dot_product" in name:
            self.kernel_inputs += [x for x in args if isinstance(x, Tensor)]
        if not function.is_view:
            self.operators += 1
            self.written += [x.untyped_storage().nbytes() for x in _tensors(out)]
        return out


def _tensors(out: Any) -> list[Tensor]:
    return [x for x in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(x, Tensor)]


def _layer(kind: str, place: str) -> Attention:
    return make_layer(kind, place, dtype=torch.float32, embed_dim=WIDTH, num_heads=HEADS)


@torch.no_grad()
def _after_many_steps(kind: str, place: str) -> tuple[Attention, dict, dict[str, Any]]:
    """A sublayer with ``PAST`` positions cached, and what its next step is called with besides the
    query.
    """
    layer, state = _layer(kind, place), {}
    if place == "cross":
        memory = random(PAST, SENTENCES, WIDTH, dtype=torch.float32)
        rest = {
            "key": memory,
            "value": memory,
            "static_kv": True,
            "incremental_state": state,
            "need_weights": False,
        }
        layer(random(1, ROWS, WIDTH, dtype=torch.float32), **rest)
        return layer, state, rest
    rest = {"incremental_state": state, "need_weights": False}
    layer(random(PAST, ROWS, WIDTH, dtype=torch.float32), attn_mask=CausalMask(PAST), **rest)
    return layer, state, rest


def _work_of_a_step(layer: Attention, rest: dict[str, Any]) -> Work:
    query = random(1, ROWS, WIDTH, dtype=torch.float32)
    with torch.no_grad(), Work() as work:
        layer(query, **rest)
    return work


def _cache(layer: Attention, state: dict) -> KeyValueCache:
    cache = layer._get_input_buffer(state)
    assert isinstance(cache, KeyValueCache)
    return cache


@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_a_decoding_step_writes_the_longer_cache_and_the_scores_but_no_heads(
    kind: str, place: str
) -> None:
    layer, state, rest = _after_many_steps(kind, place)
    work = _work_of_a_step(layer, rest)
    cache = _cache(layer, state)
    scores = ROWS * HEADS * cache.key.size(2) * FLOAT
    vectors = (
        ROWS * HEADS * max(layer.key_head_dim, layer.value_head_dim) * FLOAT
    )  # queries or heads of one position
    one_tensor = max(cache.key.numel(), cache.value.numel()) * FLOAT
    summed_output = (
        WIDTH * layer.head_dim * FLOAT if kind == "sha" else 0
    )  # its W_O, summed over equal heads
    bound = max(scores, vectors, summed_output, one_tensor if place == "decoder" else 0)
    if kind in ("mhe_conv", "mha_conv"):  # each key beside the two before it
        bound = max(bound, 3 * cache.key.numel() * FLOAT)
    assert max(work.written) <= bound
    kept = layer.key_heads + layer.value_heads
    if kept < 2 * HEADS:
        expanded = (
            HEADS
            * max(layer.key_head_dim, layer.value_head_dim)
            * cache.key.size(0)
            * cache.key.size(2)
            * FLOAT
        )
        assert layer.value_heads == HEADS or max(work.written) < expanded
    weights = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    for given in work.kernel_inputs:  # each stored number is read once: nothing was repeated
        storage = given.untyped_storage()
        assert storage.data_ptr() in weights or storage.nbytes() <= max(bound, cache.nbytes)


def test_a_reorder_writes_exactly_the_cache(kind: str) -> None:
    layer, state, _ = _after_many_steps(kind, "decoder")
    before = _cache(layer, state).nbytes
    order = torch.tensor([0, 0, 1, 4, 3, 3])
    with Work() as work:
        layer.reorder_incremental_state(state, order)
    cache = _cache(layer, state)
    assert cache.nbytes == before == cache.key.size(0) * PAST * layer.cached_values * FLOAT
    assert sum(n for n in work.written if n > order.numel() * order.element_size()) == before


@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_generation_computes_nothing_anew_that_depends_on_weights_alone(place: str) -> None:
    """With head embeddings a step starts as many operators as multi-query attention does.

    (MHE-Add's two sums stay: of the queries and of the heads.)
    """
    counts = {}
    for kind in ("mqa", "mhe_mul", "mhe_add"):
        layer, _, rest = _after_many_steps(kind, place)
        layer.make_generation_fast_()
        _work_of_a_step(layer, rest)  # what is kept is computed
        counts[kind] = _work_of_a_step(layer, rest).operators
    assert counts["mhe_mul"] == counts["mqa"]
    assert counts["mhe_add"] == counts["mqa"] + 2


@torch.no_grad()
def test_generation_is_the_same_and_has_no_more_parameters(kind: str, place: str) -> None:
    layer = make_layer(kind, place, bias=True)
    x = random(5, 3, EMBED_DIM)
    y = random(7, 3, EMBED_DIM, seed=1) if place == "cross" else x
    before, (expected, weights) = dict(layer.state_dict()), layer(x, y, y, need_head_weights=True)
    layer.make_generation_fast_()
    for _ in range(2):
        found, same_weights = layer(x, y, y, need_head_weights=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(same_weights, weights, rtol=0, atol=1e-12)
    after = layer.state_dict()
    assert list(after) == list(before) == [name for name, _ in layer.named_parameters()]
    assert all(torch.equal(after[name], before[name]) for name in before)

"""The cache: appending, reordering, what it counts, and what an order means where rows are kept
once a sentence.
"""

from __future__ import annotations

import pytest
import torch

from fairseq_mhe.attention.cache import KeyValueCache, sentence_order
from tests.attention.conftest import random


def filled(rows: int = 2, length: int = 3, same: bool = False) -> KeyValueCache:
    cache = KeyValueCache()
    key = random(rows, 1, length, 4, dtype=torch.float32)
    cache.append(
        key, key if same else random(rows, 1, length, 4, dtype=torch.float32, seed=1), None
    )
    return cache


def test_appending_keeps_order() -> None:
    cache = KeyValueCache()
    assert not cache.filled
    assert cache.nbytes == 0
    parts = [random(2, 3, n, 4, seed=n) for n in (2, 1, 3)]
    for part in parts:
        cache.append(part, -part, None)
    assert torch.equal(cache.key, torch.cat(parts, 2))
    assert torch.equal(cache.value, -torch.cat(parts, 2))
    assert cache.padding is None


def test_one_tensor_for_keys_and_values_stays_one() -> None:
    cache = filled(same=True)
    extra = random(2, 1, 1, 4, dtype=torch.float32)
    cache.append(extra, extra, None)
    cache.reorder(torch.tensor([1, 1, 0]))
    assert cache.key is cache.value
    assert cache.nbytes == 3 * 4 * 4 * 4
    assert filled().nbytes == 2 * filled(same=True).nbytes


def test_padding_that_comes_and_goes() -> None:
    new = random(2, 1, 1, 4, dtype=torch.float32)
    padded = torch.tensor([[False], [True]])
    cache = filled()
    cache.append(new, new, padded)
    cache.append(new, new, None)
    assert torch.equal(cache.padding, torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 0]]).bool())
    cache.reorder(torch.tensor([1, 0]))
    assert cache.padding[0, 3]


def test_an_order_that_moves_nothing_copies_nothing() -> None:
    cache = filled()
    before = cache.key.data_ptr()
    cache.reorder(torch.tensor([0, 1]))
    assert cache.key.data_ptr() == before
    cache.beam = 3
    cache.reorder(torch.tensor([2, 0, 1, 3, 3, 4]))
    assert cache.key.data_ptr() == before


def test_sentence_order() -> None:
    assert sentence_order(torch.tensor([0, 1]), 2, 1) == (None, 1)
    assert sentence_order(torch.tensor([1, 0, 2, 2]), 2, 2) == (None, 2)
    rows, beam = sentence_order(torch.tensor([5, 4]), 3, 2)
    assert (rows.tolist(), beam) == ([2], 2)
    rows, beam = sentence_order(torch.tensor([0, 2]), 2, 2)  # mixes two sentences in one group
    assert (rows, beam) == (None, 1)
    rows, beam = sentence_order(torch.tensor([3]), 2, 2)
    assert (rows.tolist(), beam) == ([1], 1)


@pytest.mark.parametrize("inference", [False, True])
def test_an_order_that_changed_in_place_is_asked_again(inference: bool) -> None:
    with torch.inference_mode(inference):
        order = torch.tensor([0, 1, 2, 3])
        rows, beam = sentence_order(order, 3, 2)
        assert (rows.tolist(), beam) == ([0, 1], 2)
        order.view(-1, 2).add_(2)
        rows, beam = sentence_order(order, 3, 2)
    assert (rows.tolist(), beam) == ([1, 2], 2)


def test_one_row_needs_no_look_at_the_order() -> None:
    unknown = torch.empty(4, dtype=torch.long, device="meta")  # which cannot be looked at
    assert sentence_order(unknown, 1, 4) == (None, 4)


def test_a_plain_dictionary_is_adopted() -> None:
    """fairseq's layers may hand over their own (prev_self_attn_state)."""
    key = random(2, 1, 3, 4)
    cache = KeyValueCache({"prev_key": key, "prev_value": key + 1})
    assert cache.filled
    assert torch.equal(cache.value, key + 1)

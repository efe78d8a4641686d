"""The cache: appending, reordering, and orders of hypotheses that share a sentence's row."""

import pytest
import torch

from fairseq_mhe.attention.cache import KeyValueCache, sentence_order
from tests.attention.conftest import random


def test_padding_of_some_steps_only() -> None:
    cache, new = KeyValueCache(), random(2, 1, 1, 4)
    for padding in (None, torch.tensor([[False], [True]]), None):
        cache.append(new, new, padding)
    assert cache.padding is not None
    assert torch.equal(cache.padding, torch.tensor([[0, 0, 0], [0, 1, 0]]).bool())
    cache.reorder(torch.tensor([1, 0]))
    assert torch.equal(cache.padding, torch.tensor([[0, 1, 0], [0, 0, 0]]).bool())


def test_sentence_order() -> None:
    assert sentence_order(torch.tensor([0, 1]), 2, 1) == (None, 1)
    assert sentence_order(torch.tensor([1, 0, 2, 2]), 2, 2) == (None, 2)
    rows, beam = sentence_order(torch.tensor([5, 4]), 3, 2)
    assert (rows.tolist(), beam) == ([2], 2)
    rows, beam = sentence_order(torch.tensor([0, 2]), 2, 2)  # one beam would mix two sentences
    assert (rows, beam) == (None, 1)
    rows, beam = sentence_order(torch.tensor([3]), 2, 2)
    assert (rows.tolist(), beam) == ([1], 1)
    assert sentence_order(torch.tensor([1]), 1, 2) == (None, 1)  # of one sentence, but no beam
    unreadable = torch.empty(4, dtype=torch.long, device="meta")
    assert sentence_order(unreadable, 1, 4) == (None, 4)


@pytest.mark.parametrize("inference", [False, True])
def test_an_order_changed_in_place_is_read_again(inference: bool) -> None:
    with torch.inference_mode(inference):
        order = torch.tensor([0, 1, 2, 3])
        rows, beam = sentence_order(order, 3, 2)
        assert (rows.tolist(), beam) == ([0, 1], 2)
        order.view(-1, 2).add_(2)
        rows, beam = sentence_order(order, 3, 2)
    assert (rows.tolist(), beam) == ([1, 2], 2)

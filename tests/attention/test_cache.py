"""The cache: orders of hypotheses, and shared heads that no decoding step copies."""

from typing import Any

import pytest
import torch

from fairseq_mhe.attention.cache import sentence_order
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import Operators, fast, make_layer, random


def test_the_order_of_one_sentence_is_not_read() -> None:
    """Reading would make the host wait for the GPU."""
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


@pytest.mark.parametrize("place", ["decoder", "cross"])
@torch.no_grad()
def test_a_step_copies_no_shared_head(kind: str, place: str) -> None:
    """2 sentences, 3 hypotheses each, after 60 positions; no operator writes 8 heads of them."""
    layer = fast(make_layer(kind, embed_dim=256, num_heads=8), place)
    given: dict[str, Any] = {"incremental_state": {}, "need_weights": False}
    x = random(60, 6, 256)
    if place == "cross":
        given |= {"key": random(60, 2, 256, seed=1), "static_kv": True}
        layer(x[:1], **given)
    else:
        layer(x, attn_mask=CausalMask(60), **given)
    with Operators() as work:
        layer(x[:1], **given)
    cache = given["incremental_state"][layer]
    for cached in (cache.key, cache.value):  # (B, Hk, S, d)
        if cached.size(1) == 1:
            assert max(work.written) < 8 * cached.nbytes

"""The cache: orders of hypotheses that are changed in place, and orders that nobody need read."""

import pytest
import torch

from fairseq_mhe.attention.cache import sentence_order


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

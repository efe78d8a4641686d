"""Models are compared on words, not on padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.convert.difference import logit_difference, loss, search
from fairseq_mhe.convert.material import random_batches
from tests.fixtures.models import make_batch, make_model

PAD = 1


class Shifted(nn.Module):
    """A model whose logits are off by 0.5 for one word, and by far at padding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> tuple[torch.Tensor, None]:
        logits = self.model(**inputs)[0].clone()
        logits[0, 0, 7] += 0.5
        logits[inputs["prev_output_tokens"].eq(PAD)] += 100
        return logits, None


def test_the_largest_difference_at_real_positions() -> None:
    model = make_model(attention="mha")
    batches = [{"net_input": make_batch(seed=seed)} for seed in (0, 1)]
    found = logit_difference(model, Shifted(model).eval(), batches, PAD)
    assert found.largest == pytest.approx(0.5, abs=1e-6)
    assert found.positions == sum(
        int(b["net_input"]["prev_output_tokens"].ne(PAD).sum()) for b in batches
    )
    assert found.relative == pytest.approx(0.5 / max(1, found.largest_logit), rel=1e-5)


@pytest.mark.parametrize("cutoff", [None, [6, 9]])
def test_the_loss_is_the_mean_over_words(cutoff: list[int] | None) -> None:
    model: Any = make_model(attention="mha", adaptive_softmax_cutoff=cutoff)
    inputs = make_batch()
    target = inputs["prev_output_tokens"].roll(-1, dims=1)
    target[:, -1] = PAD
    with torch.inference_mode():
        output = model(**inputs)[0]
        chances = output.log_softmax(dim=-1)
        if cutoff:
            chances = model.decoder.adaptive_softmax.get_log_prob(output, None)
    rows, columns = target.ne(PAD).nonzero(as_tuple=True)
    by_hand = -sum(
        float(chances[r, c, target[r, c]]) for r, c in zip(rows, columns, strict=True)
    ) / len(rows)
    assert math.isclose(
        loss(model, [{"net_input": inputs, "target": target}], PAD), by_hand, rel_tol=1e-5
    )


def test_searches_end_in_the_end_of_sentence_and_are_known_by_their_number(
    make_source: Callable[..., Source],
) -> None:
    source = make_source(learned=True, attention="mha")
    task, batches = source.task(), random_batches(source, sentences=60)
    assert [len(batch["id"]) for batch in batches] == [50, 10]
    found = search(source.model, task, batches, beam=2, limit=6)
    assert sorted(found) == list(range(60))
    assert all(
        tokens[-1] == task.target_dictionary.eos() and len(tokens) <= 7
        for tokens in found.values()
    )

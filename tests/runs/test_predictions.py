"""The best answer of a window, against every span tried."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.runs import predictions
from fairseq_mhe.runs.predictions import Fitted

BOS, END, PAD = 0, 2, 1
TOKENS = torch.tensor(
    [
        [BOS, 7, 8, END, END, 9, 10, 11, 12, 13, END],
        [BOS, 7, END, END, 9, 10, 11, END, PAD, PAD, PAD],
    ]
)
#: Of each window: where its passage begins, and how long it is.
PASSAGES = ((5, 5), (4, 3))


@pytest.mark.parametrize("longest", [1, 3, 30])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_span_of_the_passage_is_better(
    longest: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "_LONGEST", longest)
    logits = torch.randn(*TOKENS.shape, 2, generator=torch.Generator().manual_seed(seed))

    def model(**_: Any) -> tuple[Tensor, None]:
        return logits, None

    fitted: Any = object.__new__(Fitted)
    fitted._model = model
    fitted._task = SimpleNamespace(source_dictionary=SimpleNamespace(eos=lambda: END))
    found = fitted._best({"net_input": {"src_tokens": TOKENS}})
    for row, (begin, length) in enumerate(PASSAGES):
        scores = {
            (first, last): float(logits[row, begin + first, 0] + logits[row, begin + last, 1])
            for first, last in itertools.product(range(length), repeat=2)
            if first <= last < first + longest
        }
        best, none, first, last = found[row]
        assert (first, last) == max(scores, key=lambda span: scores[span])
        assert best == pytest.approx(scores[first, last], abs=1e-6)
        assert none == pytest.approx(float(logits[row, 0].sum()), abs=1e-6)

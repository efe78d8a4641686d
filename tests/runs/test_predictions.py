"""The best answer of a window, against every span tried; and over all windows of a question."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fairseq_mhe.runs import predictions
from fairseq_mhe.runs.predictions import best_answers, spans
from fairseq_mhe.runs.squad_scores import Answer

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
    dictionary = SimpleNamespace(eos=lambda: END)
    language_model: Any = SimpleNamespace(
        model=lambda **_: (logits, None), task=SimpleNamespace(source_dictionary=dictionary)
    )
    found = spans(language_model, {"net_input": {"src_tokens": TOKENS}})
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


def test_the_best_window_answers_and_the_least_none_counts() -> None:
    context = {
        "text": "one two three four five six",
        "begins": [0, 4, 8, 14, 19, 24],
        "ends": [3, 7, 13, 18, 23, 27],
    }
    windows = [[0, 0, 0, 4], [0, 0, 2, 4], [1, 0, 0, 4], [1, 0, 2, 4]]
    facts = {
        "contexts": [context],
        "questions": ["a", "b"],
        "articles": [0, 3],
        "windows": windows,
    }
    found = [(1.0, 5.0, 0, 1), (3.0, 2.0, 1, 2), (4.0, -1.0, 0, 0), (3.5, 0.5, 0, 3)]
    answers = {"a": Answer("four five", 2.0 - 3.0, 0), "b": Answer("one", -1.0 - 4.0, 3)}
    assert best_answers(found, facts) == answers

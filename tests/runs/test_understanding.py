"""Chosen answers and candidates have the highest score of all; metrics equal their definitions."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairseq
import pytest
import torch
from omegaconf import OmegaConf

from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.runs import finetuning, language_model
from fairseq_mhe.runs.language_model import spans
from fairseq_mhe.runs.squad import Answer
from fairseq_mhe.runs.task_scores import (
    METRICS,
    best_answers,
    best_candidates,
    exact_groups,
    task_metrics,
)

FINETUNING = Path(fairseq.__file__).parent / "examples" / "roberta" / "config" / "finetuning"
PREDICTED = ["1", "1", "0", "1", "0", "0", "1", "0"]
GOLD = ["1", "0", "0", "1", "1", "0", "1", "1"]
GROUPS = ["q1", "q1", "q2", "q2", "q3", "q3", "q4", "q4"]


@pytest.mark.parametrize("task", ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst_2", "sts_b"])
def test_row_base_is_fine_tuned_as_by_fairseqs_configurations(task: str) -> None:
    theirs = OmegaConf.load(FINETUNING / f"{task}.yaml")
    manifest = {"lines": {"train": 320}}
    data: Any = SimpleNamespace(task=TASKS[task.replace("_", "")], manifest=manifest)
    ours = finetuning._task_options("base", data, epochs=None)
    assert (ours["lr"], ours["batch_size"]) == (theirs.optimization.lr, theirs.dataset.batch_size)
    assert ours["weight_decay"] == theirs.optimizer.weight_decay
    assert ours["warmup_updates"] == 0.06 * ours["total_num_update"]  # as in RoBERTa's paper
    assert ours["max_update"] * ours["batch_size"] == 320 * theirs.optimization.max_epoch


def test_a_constant_prediction_has_no_correlation() -> None:
    labels = [["0.0", "3.0", "3.5"], ["2.0"] * 3]
    assert METRICS["pearson"](*labels) == METRICS["spearman"](*labels) == 0


def test_a_group_counts_if_all_its_labels_are_right() -> None:
    """The second, fifth and eighth labels are wrong, so that only q2 counts."""
    assert exact_groups(GOLD, PREDICTED, GROUPS) == 1 / 4


def test_scores_are_percent_and_their_mean() -> None:
    examples = {"valid": {"labels": GOLD, "groups": GROUPS}}
    mrpc: Any = SimpleNamespace(task=TASKS["mrpc"], examples=examples.get)
    scores = task_metrics(mrpc, {"dev": PREDICTED})
    assert scores["accuracy"] == 62.5
    assert scores["score"] == pytest.approx((scores["accuracy"] + scores["f1"]) / 2)
    both = {"dev_matched": ["neutral"], "dev_mismatched": ["neutral"]}
    labels = {"valid": {"labels": ["neutral"]}, "valid1": {"labels": ["entailment"]}}
    mnli: Any = SimpleNamespace(task=TASKS["mnli"], examples=labels.get)
    expected = {"score": 50, "accuracy dev_matched": 100, "accuracy dev_mismatched": 0}
    assert task_metrics(mnli, both) == expected


def test_the_candidate_of_the_highest_odds_is_chosen() -> None:
    rows = {"labels": "01110", "groups": "qqqrr", "candidates": ["Xi", "Yu", "Zo", "Xi", "Yu"]}
    chosen, gold = best_candidates(["-1.0", "0.5", "0.25", "-3", "-2"], rows)
    assert chosen == {"q": "Yu", "r": "Yu"}
    assert gold == {"q": ["Yu", "Zo"], "r": ["Xi"]}


BOS, END, PAD = 0, 2, 1
FULL = [BOS, 7, 8, END, END, 9, 10, 11, 12, 13, END]
TOKENS = torch.tensor([FULL, [BOS, 7, END, END, 9, 10, 11, END, PAD, PAD, PAD]])
#: Begin and length of the passage in each window.
PASSAGES = ((5, 5), (4, 3))


@pytest.mark.parametrize("longest", [1, 3, 30])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_span_of_a_passage_has_a_higher_score(
    longest: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_model, "_MAX_ANSWER_LENGTH", longest)
    logits = torch.randn(*TOKENS.shape, 2, generator=torch.Generator().manual_seed(seed))
    dictionary = SimpleNamespace(eos=lambda: END)
    model: Any = SimpleNamespace(
        model=lambda **_: (logits, None), task=SimpleNamespace(source_dictionary=dictionary)
    )
    predicted = spans(model, {"net_input": {"src_tokens": TOKENS}})
    for row, (begin, length) in enumerate(PASSAGES):
        scores = {
            (first, last): float(logits[row, begin + first, 0] + logits[row, begin + last, 1])
            for first, last in itertools.product(range(length), repeat=2)
            if first <= last < first + longest
        }
        best, no_answer, first, last = predicted[row]
        assert (first, last) == max(scores, key=lambda span: scores[span])
        assert best == pytest.approx(scores[first, last], abs=1e-6)
        assert no_answer == pytest.approx(float(logits[row, 0].sum()), abs=1e-6)


def test_the_best_window_answers_and_the_lowest_no_answer_score_counts() -> None:
    context = {"text": "one two three four five six", "begins": [0, 4, 8, 14, 19, 24]}
    context["ends"] = [3, 7, 13, 18, 23, 27]
    windows = [[0, 0, 0, 4], [0, 0, 2, 4], [1, 0, 0, 4], [1, 0, 2, 4]]
    facts = {"contexts": [context], "questions": ["a", "b"], "windows": windows}
    predicted = [(1.0, 5.0, 0, 1), (3.0, 2.0, 1, 2), (4.0, -1.0, 0, 0), (3.5, 0.5, 0, 3)]
    answers = {"a": Answer("four five", 2.0 - 3.0), "b": Answer("one", -1.0 - 4.0)}
    assert best_answers(predicted, facts) == answers

"""Answers to SQuAD's questions from a model's windows, and when to say that there is none."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_mhe.runs.predictions import Span
from fairseq_mhe.runs.squad_scores import f1


@dataclass(frozen=True)
class Answer:
    """``odds``: by how much the score of no answer is above that of this one, in logits."""

    text: str
    odds: float
    article: int = 0


def best_answers(
    spans: Sequence[Span], facts: Mapping[str, Any], contexts: Sequence[str]
) -> dict[str, Answer]:
    """Question -> the best answer over all its windows.

    That there is none is judged by the window that says so least (as BERT's run_squad.py).

    Args:
        spans: of `predictions.Fitted.spans`.
        facts: of `task_folder.TaskFolder.examples`.
        contexts: the texts, in the same order.
    """
    best: dict[int, tuple[float, str]] = {}
    none: dict[int, float] = {}
    for (score, nothing, first, last), place in zip(spans, facts["windows"], strict=True):
        question, number, start, _ = place
        none[question] = min(none.get(question, nothing), nothing)
        if question not in best or score > best[question][0]:
            context = facts["contexts"][number]
            begin, end = context["begins"][start + first], context["ends"][start + last]
            best[question] = score, contexts[number][begin:end]
    return {
        identity: Answer(best[n][1], none[n] - best[n][0], facts["articles"][n])
        for n, identity in enumerate(facts["questions"])
    }


def threshold(found: Mapping[str, Answer], right: Mapping[str, Sequence[str]]) -> float:
    """The odds above which no answer is given, so that F1 is highest (as the official evaluation).

    Below all odds where giving none is best; 0 where there are no questions to choose it by.
    """
    gained = best = 0.0
    chosen = -math.inf if found else 0.0
    for question, answer in sorted(found.items(), key=lambda pair: pair[1].odds):
        if right[question] == [""]:
            gained -= bool(answer.text)  # which giving none had right
        else:
            gained += max(f1(answer.text, one) for one in right[question])
        if gained > best:
            best, chosen = gained, answer.odds
    return chosen


def said_by(found: Mapping[str, Answer], most: float) -> dict[str, str]:
    """Question -> its answer, none where the odds are above ``most``."""
    return {name: "" if answer.odds > most else answer.text for name, answer in found.items()}


def said_by_halves(
    found: Mapping[str, Answer], right: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The same, with each half's threshold chosen on the other half, so that none is its own.

    Halves are of whole articles, every other one; of questions, where there is one article.
    """
    articles = sorted({answer.article for answer in found.values()})
    if len(articles) > 1:
        second = {name for name, a in found.items() if articles.index(a.article) % 2}
    else:
        second = set(list(found)[1::2])
    halves = [
        {name: answer for name, answer in found.items() if (name in second) == half}
        for half in (False, True)
    ]
    thresholds = [threshold(half, right) for half in halves]
    said = said_by(halves[0], thresholds[1]) | said_by(halves[1], thresholds[0])
    return {name: said[name] for name in found}

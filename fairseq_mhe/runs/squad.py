"""Scores of answers to SQuAD's questions, as its official evaluation: ``fairseq-mhe score-squad``.

Rajpurkar et al. 2016 (arXiv 1606.05250) and 2018 (1806.03822): small letters, punctuation, articles
and spaces do not count; the best right answer does; a question without any wants an empty one.
"""

import math
import re
import string
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.prepare.task_files import read_squad

#: Question -> its right answers, [""] where there is none.
Right = Mapping[str, Sequence[str]]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Answer(NamedTuple):
    """``odds``: by how much the score of no answer is above that of this one, in logits."""

    text: str
    odds: float


def _words(text: str) -> list[str]:
    """What of an answer is compared."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def exact(answer: str, right: str) -> float:
    """1 where both are the same, else 0."""
    return float(_words(answer) == _words(right))


def f1(answer: str, right: str) -> float:
    """The harmonic mean of precision and recall of words; empty answers match empty ones only."""
    one = _words(answer)
    other = _words(right)
    if not one or not other:
        return float(one == other)
    shared = (Counter(one) & Counter(other)).total()
    if not shared:
        return 0.0
    precision = shared / len(one)
    recall = shared / len(other)
    return 2 * precision * recall / (precision + recall)


def right_answers(path: Path) -> dict[str, list[str]]:
    """The right answers of an official file; errors as `read_squad`."""
    right: dict[str, list[str]] = {}
    for question in read_squad(path):
        # Answers that nothing is left of count as none, officially.
        texts = [text for text, _ in question.answers if _words(text)]
        right[question.identity] = texts or [""]
    return right


def squad_scores(answers: Mapping[str, str], right: Right) -> dict[str, float]:
    """Exact match and F1 in percent, of all questions and of those with and without answer."""
    missing = right.keys() - answers.keys()
    if missing:
        raise UserError(
            f"{len(missing):,} of {len(right):,} questions have no prediction, {min(missing)} "
            "among them: add them; an answer may be empty"
        )
    scores: dict[str, list[float]] = defaultdict(list)
    for question, texts in right.items():
        group = " without answer" if texts == [""] else " with answer"
        for measure in (exact, f1):
            best = max(measure(answers[question], text) for text in texts)
            scores[measure.__name__].append(best)
            scores[f"{measure.__name__}{group}"].append(best)
    return {name: 100 * sum(values) / len(values) for name, values in scores.items()}


def threshold(answers: Mapping[str, Answer], right: Right) -> float:
    """The highest odds at which an answer is given, for the best F1; -inf: no question has one."""
    gained = best = 0.0
    chosen = -math.inf
    for question, answer in sorted(answers.items(), key=lambda pair: pair[1].odds):
        if right[question] == [""]:
            gained -= bool(answer.text)  # to give none was right
        else:
            gained += max(f1(answer.text, one) for one in right[question])
        if gained > best:
            best = gained
            chosen = answer.odds
    return chosen


def answers_up_to(answers: Mapping[str, Answer], most: float) -> dict[str, str]:
    """Question -> its answer, none where the odds are above ``most``."""
    return {
        name: "" if answer.odds > most else answer.text
        for name, answer in answers.items()
    }


def add_arguments(parser: ArgumentParser) -> None:
    """Options of ``fairseq-mhe score-squad``."""
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="the official file of SQuAD 1.1 or 2.0")
    add("predictions", type=Path, metavar="PREDICTIONS", help="JSON, question id: answer")


def run(args: Namespace) -> None:
    """Print the scores."""
    right = right_answers(args.data)
    answers = read_json(args.predictions, object)
    try:
        values = squad_scores(answers, right)
    except (AttributeError, TypeError):
        raise UserError(
            f"{args.predictions} is not a JSON object of question id: answer"
        ) from None
    print(f"{len(right):,} questions")
    for name, value in values.items():
        print(f"{name}: {value:.2f}%")

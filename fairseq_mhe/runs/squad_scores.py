"""``fairseq-mhe score-squad``: exact match and F1 of answers, as SQuAD's evaluation has them.

Rajpurkar et al. 2016 (arXiv 1606.05250) and 2018 (1806.03822): answers are compared in small
letters, without punctuation, the articles a, an and the, and surplus spaces; a question counts as
its best over the right answers; one without any wants an empty answer.
"""

import argparse
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.tables import align
from fairseq_mhe.prepare.squad import read_squad

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_PUNCTUATION = set(string.punctuation)


def normalised(text: str) -> str:
    """What of an answer is compared."""
    letters = "".join(letter for letter in text.lower() if letter not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", letters).split())


def exact(found: str, right: str) -> float:
    """1 where both are the same, else 0."""
    return float(normalised(found) == normalised(right))


def f1(found: str, right: str) -> float:
    """The harmonic mean of precision and recall of words; empty answers match empty ones only."""
    one, other = normalised(found).split(), normalised(right).split()
    if not one or not other:
        return float(one == other)
    shared = (Counter(one) & Counter(other)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(one), shared / len(other)
    return 2 * precision * recall / (precision + recall)


def right_answers(path: Path) -> dict[str, list[str]]:
    """Question -> its right answers, [""] where there is none, from an official file.

    Raises:
        UserError: the file is no such, or an answer does not stand where it says in its context.
    """
    found: dict[str, list[str]] = {}
    for paragraph in read_squad(path):
        for question in paragraph.questions:
            # Answers that nothing is left of count as none, officially.
            texts = [text for text, _ in question.answers if normalised(text)]
            found[question.identity] = texts or [""]
    return found


def squad_scores(found: Mapping[str, str], right: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Exact match and F1 in percent of all questions, of those with and of those without answer.

    Raises:
        UserError: a question has no prediction.
    """
    missing = [question for question in right if question not in found]
    if missing:
        raise UserError(
            f"{len(missing):,} of {len(right):,} questions have no prediction, {missing[0]} first: "
            "every question is scored; an answer may be empty"
        )
    groups = {
        "": list(right),
        " with answer": [question for question in right if right[question] != [""]],
        " without answer": [question for question in right if right[question] == [""]],
    }
    values: dict[str, float] = {}
    measures: dict[str, Callable[[str, str], float]] = {"exact": exact, "f1": f1}
    for words, questions in groups.items():
        for name, measure in measures.items():
            best = [max(measure(found[q], answer) for answer in right[q]) for q in questions]
            if best:
                values[f"{name}{words}"] = 100 * sum(best) / len(best)
    return values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe score-squad``."""
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="the official file of SQuAD 1.1 or 2.0")
    add("predictions", type=Path, metavar="PREDICTIONS", help="JSON, question id: answer")
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print the scores."""
    right, found = right_answers(args.data), read_json(args.predictions)
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise UserError(f"{args.predictions} is not a JSON object of question id: answer")
    values = squad_scores(found, right)
    if args.json:
        print(json.dumps(values, indent=2))
        return
    rows = [(name, f"{value:.2f}") for name, value in values.items()]
    print(align((f"{len(right):,} questions", "%"), rows, "markdown", left=(0,)))

"""Score answers to SQuAD's questions as its official script does.

Rajpurkar et al. 2016 (arXiv 1606.05250) and 2018 (1806.03822): case, punctuation, articles and
spaces do not count. The best match with a gold answer counts. If there is none, "" is right.
"""

import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.task_files import read_squad

#: Question -> its gold answers, [""] for a question without an answer.
Gold = Mapping[str, Sequence[str]]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Answer(NamedTuple):
    """``odds``: score of no answer minus score of this answer, in logits."""

    text: str
    odds: float


def _words(text: str) -> list[str]:
    """Return the words of an answer that count, in small letters."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def exact(answer: str, gold: str) -> float:
    """Return 1 if both answers have the same words, else 0."""
    return float(_words(answer) == _words(gold))


def f1(answer: str, gold: str) -> float:
    """Return the F1 of words: harmonic mean of precision and recall; 1 for two empty answers."""
    predicted = _words(answer)
    wanted = _words(gold)
    if not wanted:
        return float(not predicted)
    shared = (Counter(predicted) & Counter(wanted)).total()
    return 2 * shared / (len(predicted) + len(wanted))


def gold_answers(path: Path) -> dict[str, list[str]]:
    """Return the gold answers in an official file; raises errors as `read_squad`."""
    gold: dict[str, list[str]] = {}
    for question in read_squad(path):
        # The official script drops answers that have no words.
        texts = [text for text, _ in question.answers if _words(text)]
        gold[question.identity] = texts or [""]
    return gold


def squad_scores(answers: Mapping[str, str], gold: Gold) -> dict[str, float]:
    """Return exact match and F1 in percent: of all questions, of those with answer and without."""
    missing = gold.keys() - answers.keys()
    if missing:
        raise UserError(
            f"{len(missing):,} of {len(gold):,} questions have no prediction, such as "
            f"{min(missing)}: add them; an answer may be empty"
        )
    scores: dict[str, list[float]] = defaultdict(list)
    for question, texts in gold.items():
        group = " without answer" if texts == [""] else " with answer"
        for measure in (exact, f1):
            best = max(measure(answers[question], text) for text in texts)
            scores[measure.__name__].append(best)
            scores[f"{measure.__name__}{group}"].append(best)
    return {name: 100 * sum(values) / len(values) for name, values in scores.items()}


def threshold(answers: Mapping[str, Answer], gold: Gold) -> float:
    """Return the ``limit`` for which `answers_up_to` has the best F1; -inf: all are empty."""
    gain = best = 0.0  # sum of F1 relative to giving no answers
    limit = -math.inf
    for question, answer in sorted(answers.items(), key=lambda pair: pair[1].odds):
        if gold[question] == [""]:
            gain -= bool(answer.text)  # only an empty answer is right
        else:
            gain += max(f1(answer.text, text) for text in gold[question])
        if gain > best:
            best = gain
            limit = answer.odds
    return limit


def answers_up_to(answers: Mapping[str, Answer], limit: float) -> dict[str, str]:
    """Return question -> answer, which is empty if its odds are above ``limit``."""
    return {
        question: "" if answer.odds > limit else answer.text
        for question, answer in answers.items()
    }

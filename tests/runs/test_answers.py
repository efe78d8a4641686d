"""Answers over windows and the threshold of none, against all possibilities tried."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairseq_mhe.runs.answers import Answer, best_answers, said_by, said_by_halves, threshold
from fairseq_mhe.runs.squad_scores import squad_scores
from fairseq_mhe.runs.task_scores import best_candidates

TEXT = "one two three four five six"
BEGINS = [0, 4, 8, 14, 19, 24]
ENDS = [3, 7, 13, 18, 23, 27]


def facts(windows: list[list[int]]) -> dict[str, Any]:
    return {
        "contexts": [{"begins": BEGINS, "ends": ENDS}],
        "questions": ["a", "b"],
        "articles": [0, 3],
        "windows": windows,
    }


def test_the_best_window_answers_and_the_least_none_counts() -> None:
    windows = [[0, 0, 0, 4], [0, 0, 2, 4], [1, 0, 0, 4], [1, 0, 2, 4]]
    spans = [(1.0, 5.0, 0, 1), (3.0, 2.0, 1, 2), (4.0, -1.0, 0, 0), (3.5, 0.5, 0, 3)]
    found = best_answers(spans, facts(windows), [TEXT])
    assert found == {"a": Answer("four five", 2.0 - 3.0, 0), "b": Answer("one", -1.0 - 4.0, 3)}


def cases(seed: int, count: int = 12) -> tuple[dict[str, Answer], dict[str, list[str]]]:
    draw = random.Random(seed)
    words = TEXT.split()
    found, right = {}, {}
    for number in range(count):
        text = " ".join(draw.sample(words, 2))
        found[str(number)] = Answer(text, round(draw.uniform(-3, 3), 3), number // 3)
        right[str(number)] = draw.choice([[""], [text], [draw.choice(words), text.split()[0]]])
    return found, right


@pytest.mark.parametrize("seed", range(20))
def test_no_other_threshold_is_better(seed: int) -> None:
    found, right = cases(seed)
    chosen = squad_scores(said_by(found, threshold(found, right)), right)["f1"]
    others = [-10.0, 0.0, 10.0, *(answer.odds for answer in found.values())]
    best = max(squad_scores(said_by(found, other), right)["f1"] for other in others)
    assert chosen == pytest.approx(best)


def test_a_halfs_threshold_comes_from_the_other_half() -> None:
    found, right = cases(3)
    said = said_by_halves(found, right)
    assert list(said) == list(found)
    halves = [{n: a for n, a in found.items() if a.article % 2 == half} for half in (0, 1)]
    for own, other in (halves, halves[::-1]):
        wanted = said_by(own, threshold(other, right))
        assert {name: said[name] for name in own} == wanted
    changed = {**right, **{name: [""] for name in halves[0]}}
    again = said_by_halves(found, changed)
    assert {n: again[n] for n in halves[0]} == {n: said[n] for n in halves[0]}


def test_one_articles_questions_are_halved() -> None:
    found = {
        name: Answer("one", odds) for name, odds in zip("abcd", (1.0, 2.0, 3.0, 4.0), strict=True)
    }
    right = {"a": ["one"], "b": [""], "c": ["one"], "d": [""]}
    # a and c are best answered up to 3, b and d never, and each half goes by the other.
    assert said_by_halves(found, right) == {"a": "", "b": "one", "c": "", "d": ""}
    assert said_by_halves({"a": found["a"]}, right) == {"a": ""}


def test_the_likeliest_candidate_of_a_group() -> None:
    rows = {
        "labels": ["0", "1", "1", "1", "0"],
        "groups": ["q", "q", "q", "r", "r"],
        "candidates": ["x", "y", "z", "x", "y"],
    }
    said, right = best_candidates(["-1.0", "0.5", "0.25", "-3", "-2"], rows)
    assert said == {"q": "y", "r": "y"}
    assert right == {"q": ["y", "z"], "r": ["x"]}

"""SQuAD's scores equal scores by hand; no threshold has a better F1 than the chosen one."""

import json
import random
from pathlib import Path

import pytest

from fairseq_mhe.runs.squad import Answer, answers_up_to, gold_answers, squad_scores, threshold

CONTEXT = "In 1066 the Norman army, led by William, crossed the Channel: a feat."
#: Answer, gold answer, exact match, F1 = 2 * shared words / sum of the words of both.
CASES = [
    *(("the Norman army", "Norman army", 1, 1.0), ("Norman army,", "norman ARMY", 1, 1.0)),
    *(("an  army", "army.", 1, 1.0), ("led by William", "William", 0, 0.5)),
    *(("theatre", "atre", 0, 0.0), ("ha ha ha", "ha ha ho", 0, 2 / 3)),
    *(("U.S.", "us", 1, 1.0), ("", "", 1, 1.0), ("", "William", 0, 0.0)),
    *(("the", "", 1, 1.0), ("the", "a", 1, 1.0)),
]


@pytest.mark.parametrize(("answer", "gold", "exact", "f1"), CASES)
def test_exact_match_and_f1_of_one_answer(answer: str, gold: str, exact: float, f1: float) -> None:
    values = squad_scores({"q": answer}, {"q": [gold]})
    assert values["exact"] == 100 * exact
    assert values["f1"] == pytest.approx(100 * f1)


def dataset(folder: Path, **answers: list[tuple[str, int]]) -> Path:
    """Write an official file of questions, with their gold answers, about one paragraph."""
    questions = []
    for name, pairs in answers.items():
        gold = [{"text": text, "answer_start": start} for text, start in pairs]
        questions.append({"id": name, "question": "?", "answers": gold, "is_impossible": not gold})
    paragraphs = [{"context": CONTEXT, "qas": questions}]
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
    (folder / "dev.json").write_text(json.dumps(content))
    return folder / "dev.json"


def test_the_best_gold_answer_counts_and_none_is_empty(tmp_path: Path) -> None:
    year = [("1066", 3), ("In 1066", 0), ("the", 8)]  # the last has no words
    path = dataset(tmp_path, year=year, who=[("William", 32)], none=[])
    assert gold_answers(path) == {"year": ["1066", "In 1066"], "who": ["William"], "none": [""]}
    predictions = {"year": "in 1066!", "who": "led by William", "none": ""}
    scores = squad_scores(predictions, gold_answers(path))
    assert scores == pytest.approx(
        {
            **{"exact": 200 / 3, "exact with answer": 50, "f1": 250 / 3, "f1 with answer": 75},
            **{"exact without answer": 100, "f1 without answer": 100},
        }
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_other_threshold_is_better(seed: int) -> None:
    draw = random.Random(seed)
    words = ["one", "two", "three", "four", "five", "six"]
    answers, gold = {}, {}
    for number in range(12):
        text = " ".join(draw.sample(words, 2))
        answers[str(number)] = Answer(text, round(draw.uniform(-3, 3), 3))
        gold[str(number)] = draw.choice([[""], [text], [draw.choice(words), text.split()[0]]])
    chosen = squad_scores(answers_up_to(answers, threshold(answers, gold)), gold)["f1"]
    limits = [-10.0, 0.0, 10.0, *(answer.odds for answer in answers.values())]
    best = max(squad_scores(answers_up_to(answers, limit), gold)["f1"] for limit in limits)
    assert chosen == pytest.approx(best)

"""SQuAD's scores on cases made by hand; thresholds against all others tried."""

import json
import random
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.runs.squad import Answer, answers_up_to, gold_answers, squad_scores, threshold

Capture = pytest.CaptureFixture[str]

CONTEXT = "In 1066 the Norman army, led by William, crossed the Channel: a feat."
#: Answer, right answer, exact match, F1, by hand: 2 shared words / (words + words).
CASES = [
    *(("the Norman army", "Norman army", 1, 1.0), ("Norman army,", "norman ARMY", 1, 1.0)),
    *(("an  army", "army.", 1, 1.0), ("led by William", "William", 0, 0.5)),
    *(("theatre", "atre", 0, 0.0), ("William William", "William", 0, 2 / 3)),
    *(("U.S.", "us", 1, 1.0), ("", "", 1, 1.0), ("", "William", 0, 0.0)),
    *(("the", "", 1, 1.0), ("the", "a", 1, 1.0)),
]


@pytest.mark.parametrize(("found", "right", "em", "overlap"), CASES)
def test_one_answer(found: str, right: str, em: float, overlap: float) -> None:
    values = squad_scores({"q": found}, {"q": [right]})
    assert values["exact"] == 100 * em
    assert values["f1"] == pytest.approx(100 * overlap)


def dataset(folder: Path, **answers: list[tuple[str, int]]) -> Path:
    """An official file of some questions about one paragraph."""
    questions = []
    for name, of in answers.items():
        there = [{"text": text, "answer_start": start} for text, start in of]
        questions.append({"id": name, "question": "?", "answers": there, "is_impossible": not of})
    paragraphs = [{"context": CONTEXT, "qas": questions}]
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
    (folder / "dev.json").write_text(json.dumps(content))
    return folder / "dev.json"


def test_the_best_of_several_answers_and_none(tmp_path: Path, capsys: Capture) -> None:
    year = [("1066", 3), ("In 1066", 0), ("the", 8)]  # of the last nothing is left
    path = dataset(tmp_path, year=year, who=[("William", 32)], none=[])
    assert gold_answers(path) == {"year": ["1066", "In 1066"], "who": ["William"], "none": [""]}
    said = {"year": "in 1066!", "who": "led by William", "none": ""}
    (tmp_path / "said.json").write_text(json.dumps(said))
    assert cli.main(["score-squad", str(path), str(tmp_path / "said.json")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 questions",
        *("exact: 66.67%", "exact with answer: 50.00%", "f1: 83.33%", "f1 with answer: 75.00%"),
        *("exact without answer: 100.00%", "f1 without answer: 100.00%"),
    ]


def test_bad_predictions_end_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    path, said = dataset(tmp_path, a=[], b=[]), tmp_path / "said.json"
    for text, told in (
        ('{"a": ""}', "1 of 2 questions have no prediction, b among them"),
        ('["a", "b"]', f"{said} is not a JSON object of question id: answer"),
        ('{"a": 1, "b": 2}', f"{said} is not a JSON object of question id: answer"),
    ):
        said.write_text(text)
        assert cli.main(["score-squad", str(path), str(said)]) == 2
        assert told in capsys.readouterr().err


def cases(seed: int, count: int = 12) -> tuple[dict[str, Answer], dict[str, list[str]]]:
    draw = random.Random(seed)
    words = ["one", "two", "three", "four", "five", "six"]
    found, right = {}, {}
    for number in range(count):
        text = " ".join(draw.sample(words, 2))
        found[str(number)] = Answer(text, round(draw.uniform(-3, 3), 3))
        right[str(number)] = draw.choice([[""], [text], [draw.choice(words), text.split()[0]]])
    return found, right


@pytest.mark.parametrize("seed", range(20))
def test_no_other_threshold_is_better(seed: int) -> None:
    found, right = cases(seed)
    chosen = squad_scores(answers_up_to(found, threshold(found, right)), right)["f1"]
    others = [-10.0, 0.0, 10.0, *(answer.odds for answer in found.values())]
    best = max(squad_scores(answers_up_to(found, other), right)["f1"] for other in others)
    assert chosen == pytest.approx(best)

"""COPA, WiC, WSC, ReCoRD and SQuAD as a model is given them; bad files in one line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.tasks.sentence_prediction import SentencePredictionConfig

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.understanding import WordsPredictionTask
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import open_task, prepare_task
from fairseq_mhe.prepare.task_inputs import Inputs, read_inputs, windows
from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.prepare.text_processing import join_sentencepiece as plain
from tests.fixtures.task_files import put_task, squad_content, superglue_rows
from tests.prepare.conftest import LINES

LONG = [line for line in LINES[40:] if len(line.split()) > 3]


def inputs(name: str, data: Path, folder: Path, block: int = 64, stride: int = 20) -> Inputs:
    """What `put_task` has written for training."""
    path = folder / f"{name}.train{TASKS[name].suffix}"
    return read_inputs(
        TASKS[name], path, open_data(data, TEXT).processing(), block, stride, True
    )


def test_copa_asks_for_cause_or_effect(language_text: Path, tmp_path: Path) -> None:
    folder = put_task(tmp_path, "copa", LONG)
    read = inputs("copa", language_text, folder, block=200)
    rows = superglue_rows("copa", LONG, 7)
    assert [plain(line) for line in read.columns[1]] == [row["choice1"] for row in rows]
    assert plain(read.columns[0][0]) == f"{rows[0]['premise']} What was the cause of this?"
    assert plain(read.columns[0][1]) == f"{rows[1]['premise']} What happened as a result?"
    assert read.labels == ["0", "1", "0", "1", "0", "1", "0"]
    # The longest choice cuts its premise.
    short = inputs("copa", language_text, folder, block=24)
    lengths = [[len(line.split()) for line in column] for column in short.columns]
    for premise, *choices in zip(*lengths, strict=True):
        assert premise + max(choices) + 4 <= 24
    assert short.counts["truncated"] > 0


@pytest.mark.parametrize("name", ["wic", "wsc"])
def test_spans_are_the_words(name: str, language_text: Path, tmp_path: Path) -> None:
    """As fairseq's task gives them to the model: token by token of the whole sequence."""
    folder = put_task(tmp_path / "in", name, LONG)
    out = prepare_task(TASKS[name], folder, language_text, tmp_path / "out", block=200)
    data = open_task(out)
    words = Dictionary.load(str(data.binary / "input0" / "dict.txt"))
    task = fairseqs_task(data.binary)
    for index, row in enumerate(superglue_rows(name, LONG, 7)):
        batch = task.dataset("train").collater([task.dataset("train")[index]])
        (tokens,), (spans,) = (
            batch["net_input"][key].tolist() for key in ("src_tokens", "spans")
        )
        if name == "wic":
            wanted = [row["word"]] * 2
        else:
            wanted = [row["target"][f"span{n}_text"] for n in (1, 2)]
        for (first, last), word in zip([spans[:2], spans[2:]], wanted, strict=True):
            said = plain(words.string(tokens[first : last + 1]))
            assert said.strip(".,:!?") == word.strip(".,:!?")


def fairseqs_task(binary: Path) -> WordsPredictionTask:
    """Ours, with the training set loaded."""
    config = SentencePredictionConfig(data=str(binary), num_classes=2)
    config.no_shuffle, config.init_token, config.separator_token = True, 0, 2
    config.seed, config.regression_target = 1, False
    task = WordsPredictionTask.setup_task(config)
    task.load_dataset("train")
    return task


def test_a_span_that_is_cut_off_is_the_texts_last_subword(
    language_text: Path, tmp_path: Path
) -> None:
    read = inputs("wsc", language_text, put_task(tmp_path, "wsc", LONG), block=8)
    assert read.counts["truncated"] > 0
    for line, spans in zip(read.columns[0], read.spans, strict=True):
        assert max(map(int, spans.split())) <= len(line.split())


def test_record_fills_the_gap_with_every_entity(language_text: Path, tmp_path: Path) -> None:
    read = inputs("record", language_text, put_task(tmp_path, "record", LONG, 2), block=200)
    rows = superglue_rows("record", LONG, 2)
    entities = list(dict.fromkeys(LONG[0].split()))
    groups, candidates = read.facts["groups"], read.facts["candidates"]
    assert candidates[: len(entities)] == entities
    assert groups[: len(entities)] == ["0"] * len(entities)
    assert "@" not in plain("".join(read.columns[0] + read.columns[1]))
    query = rows[0]["qas"][0]["query"]
    assert plain(read.columns[1][1]) == query.replace("@placeholder", entities[1])
    assert read.labels[0] == "1"
    assert read.labels.count("1") == 4


def test_windows_cover_all_with_the_stride() -> None:
    assert windows(10, 20, 5) == [(0, 10)]
    assert windows(10, 4, 3) == [(0, 4), (3, 7), (6, 10)]
    assert windows(11, 4, 3) == [(0, 4), (3, 7), (6, 10), (9, 11)]
    for length, stride in itertools.product(range(1, 40), (3, 9)):
        covered = set()
        for start, end in windows(length, 7, stride):
            covered |= set(range(start, end))
        assert covered == set(range(length))


@pytest.mark.parametrize("block", [48, 400])
def test_answers_are_where_the_label_says(
    block: int, language_text: Path, tmp_path: Path
) -> None:
    """<s> question </s> </s> window </s>, label by label, and nothing where there is no answer."""
    read = inputs("squad2", language_text, put_task(tmp_path, "squad2", LONG), block)
    questions = {
        question["id"]: question
        for article in squad_content(LONG)["data"]
        for question in article["paragraphs"][0]["qas"]
    }
    rows = zip(read.facts["windows"], *read.columns, read.labels, strict=True)
    answered = set()
    for (number, *_), asked, window, label in rows:
        tokens = ["<s>", *asked.split(), "</s>", "</s>", *window.split(), "</s>"]
        assert len(tokens) <= block
        first, last = map(int, label.split())
        question = questions[read.facts["questions"][number]]
        if (first, last) != (0, 0):
            said = plain(" ".join(tokens[first : last + 1]))
            assert said == question["answers"][0]["text"]
            answered.add(question["id"])
    whole = {name for name, question in questions.items() if question["answers"]}
    assert len(whole - answered) == read.counts["answers in no window"]
    assert bool(read.counts["answers in no window"]) == (block == 48)
    assert read.counts["questions"] == len(questions)
    assert bool(read.counts["truncated"]) == (block == 48)


QUESTION = ("data", 0, "paragraphs", 0, "qas", 0)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("copa", ("choice2",), None, "line 1 is no row of copa: there is no 'choice2'"),
        ("copa", ("question",), "why", "there is no 'why'"),
        ("copa", ("choice1",), " ", "a text or a label is missing"),
        ("copa", ("label",), 2, "there is no label '2', only 0, 1"),
        ("wic", ("sentence1",), 3, "line 1 is no row of wic"),
        ("wsc", ("target", "span2_index"), 99, "list index out of range"),
        ("squad1", (*QUESTION, "id"), None, "article 1: there is no 'id'"),
        (
            "squad1",
            (*QUESTION, "answers", 0, "answer_start"),
            3,
            "0-0: its answer .* is not at 3",
        ),
        ("squad1", (*QUESTION, "answers"), [], "0-0 has no answer, .* name the task squad2"),
        ("squad1", ("data",), [], "has no questions"),
    ],
)
def test_bad_files_end_in_one_line(
    name: str,
    place: tuple[str | int, ...],
    value: object,
    message: str,
    language_text: Path,
    tmp_path: Path,
) -> None:
    """A value of the first line is another one, or missing."""
    folder = put_task(tmp_path / "in", name, LONG, 2)
    path = folder / f"{name}.{TASKS[name].scored[0]}{TASKS[name].suffix}"
    first, *others = path.read_text().split("\n")
    whole = row = json.loads(first)
    *above, last = place
    for step in above:
        row = row[step]
    if value is None:
        del row[last]
    else:
        row[last] = value
    path.write_text("\n".join([json.dumps(whole), *others]))
    with pytest.raises(UserError, match=message) as caught:
        prepare_task(TASKS[name], folder, language_text, tmp_path / "out", block=64)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "out" / "bin").exists()

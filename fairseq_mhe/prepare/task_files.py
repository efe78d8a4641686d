"""Read the examples of official files: tables with tabs, JSON lines, and SQuAD's JSON."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.tasks import Task
from fairseq_mhe.prepare.text import read_lines, read_whole

Row = dict[str, Any]
#: What the parsers raise for a row that does not have its task's columns or values.
_BAD_ROW = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


class Example(NamedTuple):
    """One input of one to three texts, and its label."""

    texts: tuple[str, ...]
    label: str
    group: str = ""  # examples of one group are scored together
    spans: Sequence[tuple[int, int, int]] = ()  # index of the text, first character, end
    candidate: str = ""  # the text that fills the gap


class Question(NamedTuple):
    """A question about a paragraph, and its answers, if any."""

    identity: str
    text: str
    answers: list[tuple[str, int]]  # text, index of its first character in the context
    context: str


def task_file(task: Task, folder: Path, split: str) -> Path:
    """Return FOLDER/CoLA/train.tsv, train.tsv or cola.train.tsv; UserError if there is none."""
    official = f"{split}{task.suffix}"
    names = (f"{task.folder}/{official}", official, f"{task.name}.{official}")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder} has no {' nor '.join(names)}: unpack the official archive")


def read_task(task: Task, path: Path, drop: bool = False) -> tuple[list[Example], int]:
    """Return the examples of a file, and how many were dropped for an empty text or label.

    Only training sets may ``drop`` (QQP's has such examples). Raises UserError if a row does not
    belong to the task, or is incomplete and ``drop`` is False.
    """
    parse, columns = _PARSERS.get(task.name, _parse_row), task.header
    examples, dropped = [], 0
    try:
        for number, line in enumerate(read_lines(path), start=1):  # noqa: B007 (error message)
            if task.suffix == ".jsonl":
                row = json.loads(line)
            elif columns:
                row = dict(zip_longest(columns, line.split("\t"), fillvalue=""))
            else:  # this line is the header
                columns = line.split("\t")
                continue
            for example in parse(task, row):
                if all(text.strip() for text in (*example.texts, example.label)):
                    examples.append(example)
                elif drop:
                    dropped += 1
                else:
                    raise ValueError("a text or a label is missing: add it")
    except _BAD_ROW as error:
        where = f"{path}, line {number}"
        raise UserError(f"{where} is no row of {task.name}: {_reason(error)}") from None
    if not examples:
        raise UserError(f"{path} has no examples: give another file")
    return examples, dropped


def read_squad(path: Path) -> list[Question]:
    """Return the questions of a SQuAD file; UserError for other files and misplaced answers."""
    questions = []
    try:
        for article in json.loads(read_whole(path))["data"]:
            for paragraph in article["paragraphs"]:
                for row in paragraph["qas"]:
                    questions.append(_question(row, paragraph["context"]))
    except _BAD_ROW as error:
        raise UserError(f"{path} is no file of SQuAD: {_reason(error)}") from None
    if not questions:
        raise UserError(f"{path} has no questions: give another file")
    return questions


def _question(row: Row, context: str) -> Question:
    answers = [(answer["text"], answer["answer_start"]) for answer in row["answers"]]
    for text in (row["id"], row["question"], context):
        if not isinstance(text, str):
            raise TypeError(f"{text!r:.60} is no text")
    for text, start in answers:
        if start < 0 or not context.startswith(text, start):
            answer = f"question {row['id']}: its answer {text!r:.60}"
            raise ValueError(f"{answer} is not at {start}")
    return Question(row["id"], row["question"], answers, context)


def _reason(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _label(task: Task, row: Row) -> str:
    """Return the label, which may be empty; ValueError if the task has no such label."""
    label = str(row[task.label]).lower()
    if task.labels is None:
        if not math.isfinite(float(label or 0)):
            raise ValueError(f"{label:.40} is not finite")
    elif label and label not in task.labels:
        raise ValueError(
            f"there is no label {label!r:.40}, only {', '.join(task.labels)}"
        )
    return label


def _parse_row(task: Task, row: Row) -> Iterator[Example]:
    """Yield the one example of a row, for tasks that are not in `_PARSERS`."""
    yield Example(tuple(row[column] for column in task.columns), _label(task, row))


def _parse_multirc(task: Task, row: Row) -> Iterator[Example]:
    """Yield an example for each answer to each question of a passage, grouped by question."""
    passage = row["passage"]["text"]
    for question in row["passage"]["questions"]:
        for answer in question["answers"]:
            texts = passage, f"{question['question']} {answer['text']}"
            group = f"{row['idx']}.{question['idx']}"
            yield Example(texts, _label(task, answer), group)


#: COPA's questions about the premise, as in SuperGLUE's baselines (jiant).
_COPA_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}


def _parse_copa(task: Task, row: Row) -> Iterator[Example]:
    """Yield the premise with its question, and the two choices."""
    premise, *choices = (row[column] for column in task.columns)
    question = _COPA_QUESTIONS[row["question"]]
    yield Example((f"{premise} {question}", *choices), _label(task, row))


def _parse_wic(task: Task, row: Row) -> Iterator[Example]:
    """Yield two sentences, and the span of the word in each, in characters."""
    texts = row["sentence1"], row["sentence2"]
    first = (0, int(row["start1"]), int(row["end1"]))
    second = (1, int(row["start2"]), int(row["end2"]))
    yield Example(texts, _label(task, row), spans=(first, second))


def _parse_wsc(task: Task, row: Row) -> Iterator[Example]:
    """Yield a text and two spans; the file gives each span's words and its first word's index."""
    line, target, spans = row["text"], row["target"], []
    words = list(re.finditer(r"\S+", line))
    for name in ("span1", "span2"):
        phrase, first = target[f"{name}_text"], target[f"{name}_index"]
        last = first + len(phrase.split()) - 1
        begin, end = words[first].start(), words[last].end()
        # End the span with the phrase, before a comma. Some official phrases differ from the text.
        if line[begin:].lower().startswith(phrase.lower()):
            end = begin + len(phrase)
        spans.append((0, begin, end))
    yield Example((line,), _label(task, row), spans=spans)


def _parse_record(task: Task, row: Row) -> Iterator[Example]:
    """Yield an example for each query with each entity in its gap, grouped by query."""
    text, entities = row["passage"]["text"], row["passage"]["entities"]
    names = [text[entity["start"] : entity["end"] + 1] for entity in entities]
    for query in row["qas"]:
        answers = {answer["text"] for answer in query["answers"]}
        group = str(query["idx"])
        for name in dict.fromkeys(names):
            filled = query["query"].replace("@placeholder", name)
            texts = text.replace("@highlight", " "), filled
            yield Example(texts, str(int(name in answers)), group, candidate=name)


_PARSERS = {
    "copa": _parse_copa,
    "multirc": _parse_multirc,
    "record": _parse_record,
    "wic": _parse_wic,
    "wsc": _parse_wsc,
}

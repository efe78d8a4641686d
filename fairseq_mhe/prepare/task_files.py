"""The examples of official files: tables with tabs, JSON lines, and SQuAD's JSON."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.tasks import Task
from fairseq_mhe.prepare.text import read_lines, read_whole

Row = dict[str, Any]
#: Raised by rows that are not of their task.
_BAD_ROW = (LookupError, TypeError, ValueError, AttributeError)


class Example(NamedTuple):
    """One input of one to three texts, and its label."""

    texts: tuple[str, ...]
    label: str
    group: str = ""  # what is scored together
    spans: Sequence[tuple[int, int, int]] = ()  # text (0 or 1), first character, end
    candidate: str = ""  # what fills the gap


class Question(NamedTuple):
    """A question about a paragraph, and its answers, if any."""

    identity: str
    text: str
    answers: list[tuple[str, int]]  # text, and its first character in the context
    context: str


def task_file(task: Task, folder: Path, split: str) -> Path:
    """CoLA/train.tsv, train.tsv or cola.train.tsv in ``folder``; UserError where none is there."""
    official = f"{split}{task.suffix}"
    names = (f"{task.folder}/{official}", official, f"{task.name}.{official}")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    advice = "unpack the official archive there"
    raise UserError(f"{folder} has no {' nor '.join(names)}: {advice}")


def read_task(task: Task, path: Path, drop: bool = False) -> tuple[list[Example], int]:
    """The examples of a file with labels, and how many with an empty text or label were dropped.

    QQP's train has such, scored sets must be whole. Raises UserError where a row is not of the
    task, or incomplete and not to be dropped.
    """
    parse, columns = _PARSERS.get(task.name, _classified), task.header
    examples, dropped = [], 0
    try:
        for number, line in enumerate(read_lines(path), start=1):  # noqa: B007 (for the error)
            if task.suffix == ".jsonl":
                row = json.loads(line)
            elif columns:
                row = dict(zip_longest(columns, line.split("\t"), fillvalue=""))
            else:  # the file's own header
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
        what = f"line {number} is no row of {task.name}"
        raise UserError(f"{path}, {what}: {_reason(error)}") from None
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples, dropped


def read_squad(path: Path) -> list[Question]:
    """The questions of a file of SQuAD; UserError for other files and misplaced answers."""
    questions = []
    try:
        for article in json.loads(read_whole(path))["data"]:
            for paragraph in article["paragraphs"]:
                for row in paragraph["qas"]:
                    questions.append(_question(row, paragraph["context"]))
    except _BAD_ROW as error:
        raise UserError(f"{path} is no file of SQuAD: {_reason(error)}") from None
    if not questions:
        raise UserError(f"{path} has no questions")
    return questions


def _question(row: Row, context: str) -> Question:
    answers = [(answer["text"], answer["answer_start"]) for answer in row["answers"]]
    for words, start in answers:
        if start < 0 or not context.startswith(words, start):
            answer = f"question {row['id']}: its answer {words!r:.60}"
            raise ValueError(f"{answer} is not at {start}")
    return Question(row["id"], row["question"], answers, context)


def _reason(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _label(task: Task, row: Row) -> str:
    """The label, maybe empty; ValueError unless it is one of the task's, or a number."""
    label = str(row[task.label]).lower()
    if task.labels is None:
        float(label or 0)
    elif label and label not in task.labels:
        raise ValueError(
            f"there is no label {label!r:.40}, only {', '.join(task.labels)}"
        )
    return label


def _classified(task: Task, row: Row) -> Iterator[Example]:
    yield Example(tuple(row[column] for column in task.columns), _label(task, row))


def _answers(task: Task, row: Row) -> Iterator[Example]:
    """MultiRC: an example for each answer to each question of a passage, grouped by question."""
    text = row["passage"]["text"]
    for question in row["passage"]["questions"]:
        for answer in question["answers"]:
            texts = text, f"{question['question']} {answer['text']}"
            group = f"{row['idx']}.{question['idx']}"
            yield Example(texts, _label(task, answer), group)


#: COPA's questions about the premise, as SuperGLUE's baselines (jiant) have them.
_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}


def _choice(task: Task, row: Row) -> Iterator[Example]:
    """COPA: the premise with a question, and the two choices."""
    premise, *choices = (row[column] for column in task.columns)
    yield Example(
        (f"{premise} {_QUESTIONS[row['question']]}", *choices), _label(task, row)
    )


def _word_in_context(task: Task, row: Row) -> Iterator[Example]:
    """WiC: two sentences, and the place of the word in each, in characters."""
    texts = row["sentence1"], row["sentence2"]
    first = (0, row["start1"], row["end1"])
    second = (1, row["start2"], row["end2"])
    yield Example(texts, _label(task, row), spans=(first, second))


def _coreference(task: Task, row: Row) -> Iterator[Example]:
    """WSC: a text and two spans of it, by the number of their first word and their text."""
    line, target, spans = row["text"], row["target"], []
    words = list(re.finditer(r"\S+", line))
    for name in ("span1", "span2"):
        phrase, first = target[f"{name}_text"], target[f"{name}_index"]
        last = first + len(phrase.split()) - 1
        begin, end = words[first].start(), words[last].end()
        # The last word without a comma. Official files name other words at times: then the place.
        if line[begin:].lower().startswith(phrase.lower()):
            end = begin + len(phrase)
        spans.append((0, begin, end))
    yield Example((line,), _label(task, row), spans=spans)


def _gap(task: Task, row: Row) -> Iterator[Example]:
    """ReCoRD: an example for each entity of a passage in each query's gap, grouped by query."""
    text, entities = row["passage"]["text"], row["passage"]["entities"]
    names = [text[entity["start"] : entity["end"] + 1] for entity in entities]
    for query in row["qas"]:
        right, group = {answer["text"] for answer in query["answers"]}, str(query["idx"])
        for name in dict.fromkeys(names):
            filled = query["query"].replace("@placeholder", name)
            texts = text.replace("@highlight", " "), filled
            yield Example(texts, str(int(name in right)), group, candidate=name)


_PARSERS = {
    "copa": _choice,
    "multirc": _answers,
    "record": _gap,
    "wic": _word_in_context,
    "wsc": _coreference,
}

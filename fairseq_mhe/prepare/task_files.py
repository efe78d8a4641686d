"""The examples of official files: tables with tabs, and JSON lines.

In tables a quotation mark is an ordinary character.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.tasks import Example, Task
from fairseq_mhe.prepare.text import SUFFIXES, read_lines

Row = Mapping[str, Any]
#: In the names of SQuAD's files.
_VERSIONS = {"squad1": "-v1.1", "squad2": "-v2.0"}
#: Raised by rows that are not of their task.
BAD_ROW = (KeyError, TypeError, ValueError, IndexError, AttributeError)


def official_name(task: Task, split: str) -> str:
    """The name of an official split's file where it is published."""
    return f"{split}{_VERSIONS.get(task.name, '')}{task.suffix}"


def task_file(task: Task, folder: Path, split: str) -> Path:
    """The file of an official split: CoLA/train.tsv, train.tsv or cola.train.tsv in ``folder``.

    Raises:
        UserError: there is none.
    """
    official = official_name(task, split)
    names = (f"{task.folder}/{official}", official, f"{task.name}.{split}{task.suffix}")
    for name in names:
        for packed in SUFFIXES:
            path = folder / f"{name}{packed}"
            if path.is_file():
                return path
    raise UserError(f"{folder} has no {' nor '.join(names)}: unpack the official archive there")


def read_task(task: Task, path: Path, drop: bool = False) -> tuple[list[Example], int]:
    """The examples of a file with labels, in its order, and how many incomplete ones were dropped.

    An example is incomplete if a text or its label is missing or empty. QQP's train has such rows.

    Incomplete examples are dropped if ``drop`` is set, as in train; scored sets must be whole.

    Raises:
        UserError: a row is not of the task; or an example is incomplete and not to be dropped.
    """
    examples: list[Example] = []
    dropped = 0
    parse = _PARSERS.get(task.name, _classified)
    lines = enumerate(read_lines(path), start=1)
    columns = task.header
    if task.suffix == ".tsv" and not columns:
        columns = tuple(next(lines, (1, ""))[1].split("\t"))
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            if task.suffix == ".tsv":
                row = dict(zip_longest(columns, line.split("\t"), fillvalue=""))
            else:
                row = json.loads(line)
            for example in parse(task, row):
                if all(text.strip() for text in (*example.texts, example.label)):
                    _check_label(task, example.label)
                    examples.append(example)
                elif drop:
                    dropped += 1
                else:
                    raise ValueError("a text or a label is missing; every example needs all")
        except BAD_ROW as error:
            raise UserError(f"{where} is no row of {task.name}: {bad_row(error)}") from None
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples, dropped


def bad_row(error: Exception) -> str:
    """Why a row is not of its task, in one line."""
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _label(task: Task, row: Row) -> str:
    """The label as text; those of JSON may be true and false, or numbers."""
    return str(row[task.label]).lower()


def _check_label(task: Task, label: str) -> None:
    """Raise ValueError unless the label is one of the task's, or a number if one is predicted."""
    if task.labels is None:
        float(label)
    elif label not in task.labels:
        raise ValueError(f"there is no label {label!r:.40}, only {', '.join(task.labels)}")


def _classified(task: Task, row: Row) -> Iterator[Example]:
    yield Example(tuple(row[column] for column in task.columns), _label(task, row))


def _answers(task: Task, row: Row) -> Iterator[Example]:
    """MultiRC: an example for each answer to each question of a passage, grouped by question."""
    passage = row["passage"]
    for question in passage["questions"]:
        for answer in question["answers"]:
            answered = f"{question['question']} {answer['text']}"
            group = f"{row['idx']}.{question['idx']}"
            yield Example((passage["text"], answered), _label(task, answer), group)


#: COPA's questions about the premise, as SuperGLUE's baselines (jiant) have them.
_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


def _choice(task: Task, row: Row) -> Iterator[Example]:
    """COPA: the premise with a question, and the two choices."""
    premise, *choices = (row[column] for column in task.columns)
    yield Example((f"{premise} {_QUESTIONS[row['question']]}", *choices), _label(task, row))


def _word_in_context(task: Task, row: Row) -> Iterator[Example]:
    """WiC: two sentences, and the place of the word in each, in characters."""
    texts = row["sentence1"], row["sentence2"]
    first = 0, row["start1"], row["end1"]
    second = 1, row["start2"], row["end2"]
    yield Example(texts, _label(task, row), spans=(first, second))


def _coreference(task: Task, row: Row) -> Iterator[Example]:
    """WSC: a text and two spans of it, by the number of their first word and their text."""
    line, target = row["text"], row["target"]
    words = list(re.finditer(r"\S+", line))
    spans = []
    for name in ("span1", "span2"):
        phrase, first = target[f"{name}_text"], target[f"{name}_index"]
        last = first + len(phrase.split()) - 1
        begin, end = words[first].start(), words[last].end()
        # The last word without a comma. Official files name other words at times: then the place.
        if line[begin:].lower().startswith(phrase.lower()):
            end = begin + len(phrase)
        spans.append((0, begin, end))
    yield Example((line,), _label(task, row), spans=tuple(spans))


def _gap(task: Task, row: Row) -> Iterator[Example]:
    """ReCoRD: an example for each entity of a passage in each query's gap, grouped by query.

    An entity that occurs twice is one candidate; it is right if its text is an answer's.
    """
    passage = row["passage"]["text"]
    candidates: dict[str, None] = {}  # each once, in their order
    for entity in row["passage"]["entities"]:
        begin, last = entity["start"], entity["end"]
        candidates[passage[begin : last + 1]] = None
    for query in row["qas"]:
        right = {answer["text"] for answer in query["answers"]}
        for candidate in candidates:
            filled = query["query"].replace("@placeholder", candidate)
            texts = (passage.replace("@highlight", " "), filled)
            label = "1" if candidate in right else "0"
            yield Example(texts, label, str(query["idx"]), candidate=candidate)


_PARSERS: Mapping[str, Callable[[Task, Row], Iterator[Example]]] = {
    "copa": _choice,
    "multirc": _answers,
    "record": _gap,
    "wic": _word_in_context,
    "wsc": _coreference,
}

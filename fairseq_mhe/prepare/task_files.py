"""The examples of official files: tables with tabs, and JSON lines.

In tables a quotation mark is an ordinary character.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.tasks import Example, Task
from fairseq_mhe.prepare.text import SUFFIXES, read_lines

Row = Mapping[str, Any]
#: What JSON can hold and a text file cannot: NUL, and half of a character.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
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
    official = official_name(task, split).removesuffix(task.suffix)
    names = {official: None, split: None} | ({"dev": None} if split == "val" else {})
    for name in names:
        for place in (f"{task.folder}/{name}", name, f"{task.name}.{name}"):
            for packed in SUFFIXES:
                path = folder / f"{place}{task.suffix}{packed}"
                if path.is_file():
                    return path
    raise UserError(
        f"{folder} has no {task.folder}/{official}{task.suffix} (nor {task.name}.{split}"
        f"{task.suffix}, nor compressed): unpack the official archive there"
    )


def read_task(task: Task, path: Path, drop: bool = False) -> tuple[list[Example], int]:
    """The examples of a file with labels, in its order, and how many incomplete ones were dropped.

    An example is incomplete if a text is empty or its row lacks columns. QQP's train has such rows.

    Args:
        task: the task of the file.
        path: the file.
        drop: drop incomplete examples, as in train; scored sets must be whole.

    Raises:
        UserError: a row is not of the task; or an example is incomplete and not to be dropped.
    """
    examples: list[Example] = []
    dropped = 0
    parse = _PARSERS.get(task.name, _classified)
    for number, row in _rows(task, path):
        where = f"{path}, line {number}"
        try:
            parsed = list(parse(task, row)) if row is not None else []
        except BAD_ROW as error:
            raise UserError(f"{where} is no row of {task.name}: {bad_row(error)}") from None
        whole = [example for example in parsed if all(text.strip() for text in example.texts)]
        incomplete = len(parsed) - len(whole) if row is not None else 1
        if incomplete and not drop:
            raise UserError(f"{where}: a text or a column is missing; every example needs all")
        dropped += incomplete
        examples += whole
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples, dropped


def bad_row(error: Exception) -> str:
    """Why a row is not of its task, in one line."""
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if isinstance(error, ValueError):
        return str(error)
    return f"a value has the wrong type: {error}"


def _rows(task: Task, path: Path) -> Iterator[tuple[int, Row | None]]:
    """Number and values of each row; None if a column is missing."""
    lines = enumerate(read_lines(path), start=1)
    if task.suffix == ".jsonl":
        for number, line in lines:
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}, line {number} is no JSON: {error}") from None
        return
    columns: tuple[str, ...] = task.header
    for number, line in lines:
        values = line.split("\t")
        if number == 1 and (not columns or values == list(columns)):
            columns = tuple(values)
        elif len(values) > len(columns):
            raise UserError(
                f"{path}, line {number}: {len(values)} columns instead of {len(columns)}"
            )
        else:
            whole = len(values) == len(columns)
            yield number, dict(zip(columns, values, strict=True)) if whole else None


def text(value: Any) -> str:
    """A text that can be written to a file; raises ValueError for anything else."""
    if not isinstance(value, str) or _NO_TEXT.search(value):
        raise ValueError(f"{value!r:.60} is no text")
    return value


def _label(task: Task, row: Row) -> str:
    """The label, if it is one of the task's, or a number if a number is predicted."""
    label = row[task.label]
    label = str(label).lower() if isinstance(label, bool) else str(label)
    if task.labels is None:
        if not math.isfinite(float(label)):
            raise ValueError(f"{label!r} is no number")
    elif label not in task.labels:
        labels = ", ".join(task.labels)
        raise ValueError(f"{task.name} has no label {label!r:.40}; it has {labels}")
    return label


def _classified(task: Task, row: Row) -> Iterator[Example]:
    yield Example(tuple(text(row[column]) for column in task.columns), _label(task, row))


def _answers(task: Task, row: Row) -> Iterator[Example]:
    """MultiRC: an example for each answer to each question of a passage, grouped by question."""
    passage = row["passage"]
    for question in passage["questions"]:
        for answer in question["answers"]:
            answered = f"{text(question['question'])} {text(answer['text'])}"
            group = f"{row['idx']}.{question['idx']}"
            yield Example((text(passage["text"]), answered), _label(task, answer), group)


#: COPA's questions about the premise, as SuperGLUE's baselines (jiant) have them.
_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


def _choice(task: Task, row: Row) -> Iterator[Example]:
    """COPA: the premise with a question, and the two choices."""
    question = _QUESTIONS[row["question"]]
    premise, first, second = (text(row[column]) for column in task.columns)
    premise = premise.strip() and f"{premise} {question}"
    yield Example((premise, first, second), _label(task, row))


def _word_in_context(task: Task, row: Row) -> Iterator[Example]:
    """WiC: two sentences, and the place of the word in each, in characters."""
    texts = tuple(text(row[column]) for column in task.columns)
    spans = tuple(
        (index, *_within(line, row[f"start{index + 1}"], row[f"end{index + 1}"]))
        for index, line in enumerate(texts)
    )
    yield Example(texts, _label(task, row), spans=spans)


def _within(line: str, begin: int, end: int) -> tuple[int, int]:
    """The two ends of a stretch of a text; raises ValueError if it is outside."""
    if not 0 <= begin < end <= len(line) or not line[begin:end].strip():
        raise ValueError(f"{begin} to {end} is outside of a text of {len(line)} characters")
    return begin, end


def _coreference(task: Task, row: Row) -> Iterator[Example]:
    """WSC: a text and two spans of it, by the number of their first word and their text."""
    line = text(row["text"])
    words = list(re.finditer(r"\S+", line))
    spans = []
    for name in ("span1", "span2"):
        phrase, first = text(row["target"][f"{name}_text"]), row["target"][f"{name}_index"]
        count = len(phrase.split())
        if not (count and 0 <= first <= len(words) - count):
            raise ValueError(f"{name} {phrase!r:.40} is outside of a text of {len(words)} words")
        begin, end = words[first].start(), words[first + count - 1].end()
        # The last word without a comma. Official files name other words at times: then the place.
        if line[begin:].lower().startswith(phrase.lower()):
            end = begin + len(phrase)
        spans.append((0, begin, end))
    yield Example((line,), _label(task, row), spans=tuple(spans))


_GAP, _HIGHLIGHT, _BINARY = "@placeholder", "@highlight", ("0", "1")


def _gap(task: Task, row: Row) -> Iterator[Example]:
    """ReCoRD: an example for each entity of a passage in each query's gap, grouped by query.

    An entity that occurs twice is one candidate; it is right if its text is an answer's.
    """
    passage = text(row["passage"]["text"])
    candidates: dict[str, None] = {}  # in their order
    for entity in row["passage"]["entities"]:
        begin, end = _within(passage, entity["start"], entity["end"] + 1)
        candidates[passage[begin:end]] = None
    for query in row["qas"]:
        if _GAP not in query["query"]:
            raise ValueError(f"a query has no {_GAP}: {query['query']!r:.60}")
        right = {text(answer["text"]) for answer in query["answers"]}
        if not right or not right <= candidates.keys():
            raise ValueError(f"the answers {sorted(right)!r:.60} are no entities of the passage")
        for candidate in candidates:
            filled = text(query["query"]).replace(_GAP, candidate)
            texts = passage.replace(_HIGHLIGHT, " "), filled
            label, group = _BINARY[candidate in right], str(query["idx"])
            yield Example(texts, label, group, candidate=candidate)


_PARSERS: Mapping[str, Callable[[Task, Row], Iterator[Example]]] = {
    "copa": _choice,
    "multirc": _answers,
    "record": _gap,
    "wic": _word_in_context,
    "wsc": _coreference,
}

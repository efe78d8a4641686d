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

Json = Mapping[str, Any]
#: What JSON can say in a text: NUL, and half of a character.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
#: In the names of SQuAD's files.
_VERSIONS = {"squad1": "-v1.1", "squad2": "-v2.0"}


def official_name(task: Task, split: str) -> str:
    """What the file of an official split is called where it is published."""
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
        f"{task.suffix}, nor with .gz or .xz): unpack the official archive there"
    )


def read_task(task: Task, path: Path) -> list[Example]:
    """The examples of a file with labels, in its order.

    Raises:
        UserError: a column is missing, a text is empty, or a label is none of the task's.
    """
    found = []
    for where, row in _rows(task, path):
        for example in _examples(task, where, row):
            if not all(text.strip() for text in example.texts):
                raise UserError(f"{where}: a text is empty; every example needs all its texts")
            found.append(example)
    if not found:
        raise UserError(f"{path} has no examples")
    return found


def _rows(task: Task, path: Path) -> Iterator[tuple[str, Json]]:
    """Where each row stands, and its values by their columns."""
    lines = enumerate(read_lines(path), start=1)
    if task.suffix == ".jsonl":
        for number, line in lines:
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{where}: it is no JSON ({error})") from None
            if not isinstance(row, dict):
                raise UserError(f"{where}: it is no JSON object")
            yield where, row
        return
    columns: tuple[str, ...] = task.header
    for number, line in lines:
        values = line.split("\t")
        if number == 1 and (not columns or values == list(columns)):
            columns = tuple(values)
            continue
        where = f"{path}, line {number}"
        if len(values) != len(columns):
            raise UserError(f"{where}: {len(values)} columns instead of {len(columns)}")
        yield where, dict(zip(columns, values, strict=True))


def _examples(task: Task, where: str, row: Json) -> Iterator[Example]:
    special = _SPECIAL.get(task.name, _classified)
    yield from special(task, where, row)


def _classified(task: Task, where: str, row: Json) -> Iterator[Example]:
    yield Example(_texts(task, where, row), _label(task, where, row))


def _texts(task: Task, where: str, row: Json) -> tuple[str, ...]:
    return tuple(text_of(where, row, column) for column in task.columns)


def _label(task: Task, where: str, row: Json) -> str:
    label = value_of(where, row, task.label)
    if isinstance(label, bool):
        label = str(label).lower()
    return _checked(task, where, str(label))


def _answers(task: Task, where: str, row: Json) -> Iterator[Example]:
    """MultiRC: an example for each answer to each question of a passage, grouped by question."""
    passage = value_of(where, row, "passage")
    if not isinstance(passage, dict) or not isinstance(passage.get("questions"), list):
        raise UserError(f"{where}: its passage has no questions")
    for question in passage["questions"]:
        asked = text_of(where, question, "question")
        for answer in list_of(where, question, "answers"):
            texts = (text_of(where, passage, "text"), f"{asked} {text_of(where, answer, 'text')}")
            group = f"{value_of(where, row, 'idx')}.{value_of(where, question, 'idx')}"
            yield Example(texts, _label(task, where, answer), group)


#: What is asked of COPA's premise, as SuperGLUE's baselines (jiant) have it.
_ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


def _choice(task: Task, where: str, row: Json) -> Iterator[Example]:
    """COPA: the premise with what is asked, and the two choices."""
    asked = text_of(where, row, "question")
    if asked not in _ASKED:
        raise UserError(f"{where}: its question is {asked!r:.40}, neither cause nor effect")
    premise, *choices = _texts(task, where, row)
    if not premise.strip():
        raise UserError(f"{where}: a text is empty; every example needs all its texts")
    yield Example((f"{premise} {_ASKED[asked]}", *choices), _label(task, where, row))


def _word_in_context(task: Task, where: str, row: Json) -> Iterator[Example]:
    """WiC: two sentences, and where the word is in each, in characters."""
    texts = _texts(task, where, row)
    spans = []
    for index, text in enumerate(texts):
        begin, end = (number_of(where, row, f"{side}{index + 1}") for side in ("start", "end"))
        if not 0 <= begin < end <= len(text) or not text[begin:end].strip():
            raise UserError(
                f"{where}: the word of {task.columns[index]} is at {begin} to {end}, outside of "
                f"its text of {len(text)} characters"
            )
        spans.append((index, begin, end))
    yield Example(texts, _label(task, where, row), spans=tuple(spans))


def _coreference(task: Task, where: str, row: Json) -> Iterator[Example]:
    """WSC: a text and two spans of it, by the number of their first word and their text."""
    (text,) = _texts(task, where, row)
    words = list(re.finditer(r"\S+", text))
    target = value_of(where, row, "target")
    spans = []
    for name in ("span1", "span2"):
        said, first = (
            text_of(where, target, f"{name}_text"),
            number_of(where, target, f"{name}_index"),
        )
        count = len(said.split())
        if not (count and 0 <= first <= len(words) - count):
            raise UserError(
                f"{where}: {name} {said!r:.40} is at word {first}, outside of its text of "
                f"{len(words)} words"
            )
        begin, end = words[first].start(), words[first + count - 1].end()
        # The last word without a comma. Official files name other words at times: then the place.
        if text[begin:].lower().startswith(said.lower()):
            end = begin + len(said)
        spans.append((0, begin, end))
    yield Example((text,), _label(task, where, row), spans=tuple(spans))


def _gap(task: Task, where: str, row: Json) -> Iterator[Example]:
    """ReCoRD: an example for each entity of a passage in each query's gap, grouped by query.

    An entity that occurs twice is one candidate; it is right where its text is an answer's.
    """
    passage = value_of(where, row, "passage")
    text = text_of(where, passage, "text")
    candidates: dict[str, None] = {}  # in their order
    for entity in list_of(where, passage, "entities"):
        candidates[_stretch(where, text, entity)] = None
    for query in list_of(where, row, "qas"):
        asked = text_of(where, query, "query")
        if _GAP not in asked:
            raise UserError(f"{where}: a query has no {_GAP}: {asked!r:.60}")
        right = set()
        for answer in list_of(where, query, "answers"):
            said = text_of(where, answer, "text")
            if said not in candidates:
                raise UserError(
                    f"{where}: the answer {said!r:.60} is none of the entities in its passage"
                )
            right.add(said)
        if not right:
            raise UserError(f"{where}: a query has no answer")
        for candidate in candidates:
            filled = asked.replace(_GAP, candidate), text.replace(_HIGHLIGHT, " ")
            group = str(value_of(where, query, "idx"))
            yield Example(filled[::-1], _BINARY[candidate in right], group, candidate=candidate)


_GAP, _HIGHLIGHT, _BINARY = "@placeholder", "@highlight", ("0", "1")


def _stretch(where: str, text: str, entity: Any) -> str:
    """The text of an entity; its end is its last character."""
    begin, end = number_of(where, entity, "start"), number_of(where, entity, "end") + 1
    if not 0 <= begin < end <= len(text):
        raise UserError(
            f"{where}: an entity is at {begin} to {end - 1}, outside of its passage of {len(text)} "
            "characters"
        )
    return text[begin:end]


_SPECIAL: Mapping[str, Callable[[Task, str, Json], Iterator[Example]]] = {
    "copa": _choice,
    "multirc": _answers,
    "record": _gap,
    "wic": _word_in_context,
    "wsc": _coreference,
}


def value_of(where: str, row: Any, column: str) -> Any:
    """A column of a row; `text_of` and its like: one of a type.

    Raises:
        UserError: there is no such column, or a text in it cannot be written to a file.
    """
    if not isinstance(row, Mapping) or column not in row:
        raise UserError(f"{where}: there is no column {column!r}")
    value = row[column]
    if isinstance(value, str) and _NO_TEXT.search(value):
        raise UserError(f"{where}: {column} is {value!r:.40}, no text")
    return value


def text_of(where: str, row: Any, column: str) -> str:
    """A text."""
    value = value_of(where, row, column)
    if not isinstance(value, str):
        raise UserError(f"{where}: {column} is {value!r:.40}, no text")
    return value


def list_of(where: str, row: Any, column: str) -> list[Any]:
    """A list."""
    value = value_of(where, row, column)
    if not isinstance(value, list):
        raise UserError(f"{where}: {column} is {value!r:.40}, no list")
    return value


def number_of(where: str, row: Any, column: str) -> int:
    """A whole number."""
    value = value_of(where, row, column)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(f"{where}: {column} is {value!r:.40}, no whole number")
    return value


def _checked(task: Task, where: str, label: str) -> str:
    """The label, if it is one of the task's.

    Raises:
        UserError: it is not.
    """
    if task.labels is not None:
        if label not in task.labels:
            raise UserError(
                f"{where}: {task.name} has no label {label!r:.40}; it has {', '.join(task.labels)}"
            )
        return label
    try:
        known = math.isfinite(float(label))
    except ValueError:
        known = False
    if not known:
        raise UserError(f"{where}: {label!r:.40} is no number, which {task.name} wants")
    return label

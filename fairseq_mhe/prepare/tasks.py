"""GLUE's tasks and those of SuperGLUE that are classifications: columns, labels, metrics, reading.

Wang et al. 2018 (arXiv 1804.07461) and 2019 (arXiv 1905.00537). Files are the official ones: tables
with tabs, in which a quotation mark is an ordinary character, and JSON lines.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.text import SUFFIXES, read_lines

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """One input of one or two texts, and its label; ``group``: what is scored together, if any."""

    texts: tuple[str, ...]
    label: str
    group: str = ""


@dataclass(frozen=True)
class Task:
    """One task.

    ``folder``: its name in the official archive; ``columns``: of its texts; ``label``: column;
    ``labels``: all that there are, in the order of classes, or None where a number is predicted;
    ``metrics``: names of `runs.metrics`, the mean of which is the task's score; ``scored``: the
    official names of the sets that are scored; ``header``: columns of a file without a header.
    """

    name: str
    folder: str
    columns: tuple[str, ...]
    label: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    scored: tuple[str, ...] = ("dev",)
    header: tuple[str, ...] = ()
    suite: str = "glue"

    @property
    def suffix(self) -> str:
        """Of its files' names."""
        return ".jsonl" if self.suite == "superglue" else ".tsv"


_ENTAILS = ("not_entailment", "entailment")
_PAIR = ("sentence1", "sentence2")
_TASKS = (
    Task(
        "cola",
        "CoLA",
        ("sentence",),
        "label",
        ("0", "1"),
        ("matthews",),
        header=("source", "label", "mark", "sentence"),
    ),
    Task("sst2", "SST-2", ("sentence",), "label", ("0", "1"), ("accuracy",)),
    Task("mrpc", "MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("f1", "accuracy")),
    Task("qqp", "QQP", ("question1", "question2"), "is_duplicate", ("0", "1"), ("f1", "accuracy")),
    Task("stsb", "STS-B", _PAIR, "score", None, ("pearson", "spearman")),
    Task(
        "mnli",
        "MNLI",
        _PAIR,
        "gold_label",
        ("contradiction", "neutral", "entailment"),
        ("accuracy",),
        scored=("dev_matched", "dev_mismatched"),
    ),
    Task("qnli", "QNLI", ("question", "sentence"), "label", _ENTAILS, ("accuracy",)),
    Task("rte", "RTE", _PAIR, "label", _ENTAILS, ("accuracy",)),
    Task("wnli", "WNLI", _PAIR, "label", ("0", "1"), ("accuracy",)),
    Task(
        "boolq",
        "BoolQ",
        ("passage", "question"),
        "label",
        ("false", "true"),
        ("accuracy",),
        ("val",),
        suite="superglue",
    ),
    Task(
        "cb",
        "CB",
        ("premise", "hypothesis"),
        "label",
        ("contradiction", "neutral", "entailment"),
        ("macro_f1", "accuracy"),
        ("val",),
        suite="superglue",
    ),
    Task(
        "superglue_rte",
        "RTE",
        ("premise", "hypothesis"),
        "label",
        _ENTAILS,
        ("accuracy",),
        ("val",),
        suite="superglue",
    ),
    # Of the embedded corpus, for a first look (`corpora.home_assistant_language`).
    Task(
        "integration",
        "integration",
        ("message",),
        "integration",
        (
            *("home_connect", "knx", "midea", "miele", "mqtt"),
            *("roborock", "sofar", "teslemetry", "victron_gx", "zha"),
        ),
        ("accuracy",),
        suite="home_assistant",
    ),
    Task(
        "multirc",
        "MultiRC",
        ("passage", "answer"),
        "label",
        ("0", "1"),
        ("f1", "exact_groups"),
        ("val",),
        suite="superglue",
    ),
)
TASKS = {task.name: task for task in _TASKS}


def task_file(task: Task, folder: Path, split: str) -> Path:
    """The file of an official split: CoLA/train.tsv, train.tsv or cola.train.tsv in ``folder``.

    Raises:
        UserError: there is none.
    """
    names = [split, "dev"] if split == "val" else [split]
    for name in names:
        for place in (f"{task.folder}/{name}", name, f"{task.name}.{name}"):
            for packed in SUFFIXES:
                path = folder / f"{place}{task.suffix}{packed}"
                if path.is_file():
                    return path
    raise UserError(
        f"{folder} has no {task.folder}/{split}{task.suffix} (nor {task.name}.{split}"
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
            except ValueError as error:
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
    if task.name == "multirc":
        yield from _answers(where, row)
        return
    label = _value(where, row, task.label)
    if isinstance(label, bool):
        label = str(label).lower()
    texts = tuple(_text(where, row, column) for column in task.columns)
    yield Example(texts, _checked(task, where, str(label)))


def _answers(where: str, row: Json) -> Iterator[Example]:
    """One example for each answer to each question of a passage, grouped by question."""
    passage = _value(where, row, "passage")
    if not isinstance(passage, dict) or not isinstance(passage.get("questions"), list):
        raise UserError(f"{where}: its passage has no questions")
    for question in passage["questions"]:
        asked = _text(where, question, "question")
        for answer in _value(where, question, "answers"):
            label = _checked(TASKS["multirc"], where, str(_value(where, answer, "label")))
            texts = (_text(where, passage, "text"), f"{asked} {_text(where, answer, 'text')}")
            group = f"{_value(where, row, 'idx')}.{_value(where, question, 'idx')}"
            yield Example(texts, label, group)


def _value(where: str, row: Json, column: str) -> Any:
    if not isinstance(row, Mapping) or column not in row:
        raise UserError(f"{where}: there is no column {column!r}")
    return row[column]


def _text(where: str, row: Json, column: str) -> str:
    value = _value(where, row, column)
    if not isinstance(value, str):
        raise UserError(f"{where}: {column} is {value!r:.40}, no text")
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

"""SQuAD's official files: paragraphs, their questions, and answers with their places."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.text import read_whole


@dataclass(frozen=True)
class Question:
    """``answers``: text and place in the context, in characters; none where there is no answer."""

    identity: str
    text: str
    answers: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Paragraph:
    """A context, its questions, and the number of its article."""

    article: int
    context: str
    questions: tuple[Question, ...]


def read_squad(path: Path) -> list[Paragraph]:
    """The paragraphs of a file of SQuAD 1.1 or 2.0, plain, .gz or .xz.

    Raises:
        UserError: the file is no such, or an answer does not stand where it says in its context.
    """
    try:
        content = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no file of SQuAD: it is no JSON ({error})") from None
    found = []
    for number, article in enumerate(_list(path, "it", content, "data")):
        for paragraph in _list(path, f"article {number + 1}", article, "paragraphs"):
            found.append(_paragraph(path, number, paragraph))
    if not any(paragraph.questions for paragraph in found):
        raise UserError(f"{path} has no questions")
    return found


def _paragraph(path: Path, number: int, paragraph: Any) -> Paragraph:
    where = f"a paragraph of article {number + 1}"
    context = _value(path, where, paragraph, "context", str)
    questions = tuple(
        _question(path, where, context, row) for row in _list(path, where, paragraph, "qas")
    )
    return Paragraph(number, context, questions)


def _question(path: Path, where: str, context: str, row: Any) -> Question:
    identity = _value(path, f"a question of {where}", row, "id", str)
    where = f"question {identity}"
    text = _value(path, where, row, "question", str)
    answers = []
    for answer in _list(path, where, row, "answers"):
        said = _value(path, f"an answer of {where}", answer, "text", str)
        start = _value(path, f"an answer of {where}", answer, "answer_start", int)
        if start < 0 or context[start : start + len(said)] != said:
            raise UserError(
                f"{path}, {where}: the answer {said!r:.60} does not stand at {start} of its context"
            )
        answers.append((said, start))
    return Question(identity, text, tuple(answers))


def _list(path: Path, where: str, row: Any, column: str) -> Iterator[Any]:
    yield from _value(path, where, row, column, list)


def _value(path: Path, where: str, row: Any, column: str, kind: type) -> Any:
    if not isinstance(row, dict) or column not in row:
        raise UserError(f"{path} is no file of SQuAD: {where} has no column {column!r}")
    value = row[column]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{path}: {column} of {where} is {value!r:.40}, no {kind.__name__}")
    return value

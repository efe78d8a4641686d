"""SQuAD's official files: paragraphs, their questions, and answers with their places."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.task_files import BAD_ROW, bad_row
from fairseq_mhe.prepare.text import read_whole


@dataclass(frozen=True)
class Question:
    """``answers``: text and place in the context, in characters; none if there is no answer."""

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
    """The paragraphs of a file of SQuAD 1.1 or 2.0, plain or compressed.

    Raises:
        UserError: the file is no such, or an answer is not at its place in the context.
    """
    paragraphs = []
    number = 0
    try:
        for number, article in enumerate(json.loads(read_whole(path))["data"]):
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                questions = tuple(_question(context, row) for row in paragraph["qas"])
                paragraphs.append(Paragraph(number, context, questions))
    except BAD_ROW as error:
        raise UserError(
            f"{path} is no file of SQuAD: article {number + 1}: {bad_row(error)}"
        ) from None
    if not any(paragraph.questions for paragraph in paragraphs):
        raise UserError(f"{path} has no questions")
    return paragraphs


def _question(context: str, row: dict[str, Any]) -> Question:
    answers = []
    for answer in row["answers"]:
        words, start = answer["text"], answer["answer_start"]
        if start < 0 or not context.startswith(words, start):
            raise ValueError(f"question {row['id']}: its answer {words!r:.60} is not at {start}")
        answers.append((words, start))
    return Question(row["id"], row["question"], tuple(answers))

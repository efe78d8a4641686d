"""SQuAD's official files: questions, and answers with their places."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.task_files import BAD_ROW, bad_row
from fairseq_mhe.prepare.text import read_whole


@dataclass(frozen=True)
class Question:
    """A question about a paragraph of an article, which is numbered from 0.

    ``answers``: text and place in the context, in characters; none if there is no answer.
    """

    identity: str
    text: str
    answers: tuple[tuple[str, int], ...]
    context: str
    article: int


def read_squad(path: Path) -> list[Question]:
    """The questions of a file of SQuAD 1.1 or 2.0, plain or compressed, paragraph by paragraph.

    Raises:
        UserError: the file is no such, or an answer is not at its place in the context.
    """
    questions: list[Question] = []
    number = 0
    try:
        for number, article in enumerate(json.loads(read_whole(path))["data"]):
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                questions += [_question(row, context, number) for row in paragraph["qas"]]
    except BAD_ROW as error:
        raise UserError(
            f"{path} is no file of SQuAD: article {number + 1}: {bad_row(error)}"
        ) from None
    if not questions:
        raise UserError(f"{path} has no questions")
    return questions


def _question(row: dict[str, Any], context: str, article: int) -> Question:
    answers = tuple((answer["text"], answer["answer_start"]) for answer in row["answers"])
    for words, start in answers:
        if start < 0 or not context.startswith(words, start):
            raise ValueError(
                f"question {row['id']}: its answer {words!r:.60} is not at {start}"
            )
    return Question(row["id"], row["question"], answers, context, article)

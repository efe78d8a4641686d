"""SQuAD's official files: paragraphs, their questions, and answers with their places."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.task_files import list_of, number_of, text_of
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
    wrong = f"{path} is no file of SQuAD"
    try:
        content = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{wrong}: it is no JSON ({error})") from None
    found = []
    for number, article in enumerate(list_of(wrong, content, "data")):
        where = f"{wrong}: article {number + 1}"
        for paragraph in list_of(where, article, "paragraphs"):
            context = text_of(where, paragraph, "context")
            rows = list_of(where, paragraph, "qas")
            questions = tuple(_question(path, where, context, row) for row in rows)
            found.append(Paragraph(number, context, questions))
    if not any(paragraph.questions for paragraph in found):
        raise UserError(f"{path} has no questions")
    return found


def _question(path: Path, where: str, context: str, row: Any) -> Question:
    identity = text_of(where, row, "id")
    where = f"{path}, question {identity}"
    text = text_of(where, row, "question")
    answers = []
    for answer in list_of(where, row, "answers"):
        said, start = text_of(where, answer, "text"), number_of(where, answer, "answer_start")
        if start < 0 or context[start : start + len(said)] != said:
            raise UserError(
                f"{where}: the answer {said!r:.60} does not stand at {start} of its context"
            )
        answers.append((said, start))
    return Question(identity, text, tuple(answers))

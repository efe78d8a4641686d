"""A task's examples in subwords, none longer than a model's positions."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.subword import NOT_LAST, WORD_START
from fairseq_mhe.prepare.task_files import Example, Question, read_squad, read_task
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, CHOICE, Task
from fairseq_mhe.prepare.text_processing import TextProcessing

Subwords = list[str]
NOWHERE = "0 0"  # the place of <s> as the first and last token of an answer


class Inputs(NamedTuple):
    """A set of examples for fairseq, in subwords."""

    columns: list[tuple[str, ...]]  # a line for each text of each example
    counts: dict[str, int]
    labels: list[str]
    facts: dict[str, Any]  # what scoring needs beside the model's output
    spans: list[str]  # first and last token of two spans, the text's <s> counted


class Aligned(NamedTuple):
    """Subwords, and the first character of each and the one after its last."""

    subwords: list[str]
    begins: list[int]
    ends: list[int]

    def covering(self, begin: int, end: int) -> tuple[int, int]:
        """The first subword of a stretch of characters, and its last."""
        first = min(bisect_right(self.ends, begin), len(self.ends) - 1)
        return first, max(first, bisect_left(self.begins, end) - 1)


def read_inputs(
    task: Task, path: Path, processing: TextProcessing, block: int, train: bool
) -> Inputs:
    """The examples of an official file, of at most ``block`` tokens with ends and separators.

    ``train``: incomplete ones are dropped and counted. Errors as `read_task` or `read_squad`.
    """
    if task.form == ANSWERS:
        return _windows(task, path, processing, block)
    examples, dropped = read_task(task, path, drop=train)
    counts = {"examples": len(examples), "dropped": dropped, "truncated": 0}
    rows, labels, groups, _, candidates = map(list, zip(*examples, strict=True))
    facts = {"labels": labels, "groups": groups}
    if task.form == CANDIDATES:
        facts["candidates"] = candidates
    texts, spans = [], []
    columns = [processing.segment(column) for column in zip(*rows, strict=True)]
    for example, *lines in zip(examples, *columns, strict=True):
        parts = [line.split() for line in lines]
        fitting = _fitting(parts, block, task.form == CHOICE)
        counts["truncated"] += fitting != parts
        texts.append([" ".join(part) for part in fitting])
        if example.spans:
            spans.append(_marked(example, fitting, processing))
    return Inputs(list(zip(*texts, strict=True)), counts, labels, facts, spans)


def _marked(
    example: Example, parts: Sequence[Subwords], processing: TextProcessing
) -> str:
    """The first and last token of both spans; a span that is cut off is its text's last subword."""
    places = []
    for index, begin, end in example.spans:
        ahead = 1 if index == 0 else len(parts[0]) + 3  # <s>, and first </s> </s>
        last = len(parts[index]) - 1
        ends = aligned(processing, example.texts[index]).covering(begin, end)
        places += [str(ahead + min(at, last)) for at in ends]
    return " ".join(places)


def _fitting(parts: Sequence[Subwords], block: int, choice: bool) -> list[Subwords]:
    """One or two texts cut to a block; or a text that goes before each of several others."""
    if not choice:  # <s> first </s>, and </s> second </s>
        return shortened(parts, block - 2 * len(parts))
    context, *options = parts
    pairs = [shortened([context, option], block - 4) for option in options]
    shortest = min((context for context, _ in pairs), key=len)
    return [shortest, *(option for _, option in pairs)]


def shortened(parts: Sequence[Subwords], most: int) -> list[Subwords]:
    """Subwords of texts, cut at the longest one's end to ``most`` subwords in all."""
    lengths = [len(part) for part in parts]
    while sum(lengths) > most:
        lengths[lengths.index(max(lengths))] -= 1
    return [part[:length] for part, length in zip(parts, lengths, strict=True)]


def _windows(task: Task, path: Path, processing: TextProcessing, block: int) -> Inputs:
    """Questions with windows over their contexts: <s> question </s> </s> window </s>.

    Of a block of 384, windows begin 128 apart, and questions have at most 64. The label is the
    first answer's first and last token, `NOWHERE` unless all is there (Devlin et al. 2019, 4.3).
    """
    contexts: list[Any] = []
    questions: list[str] = []
    texts, labels, places, truncated, missed = [], [], [], 0, 0
    for passage, group in groupby(read_squad(path), attrgetter("context")):
        context = aligned(processing, passage)
        for question in group:
            if task.name == "squad1" and not question.answers:
                where = f"{path}, question {question.identity}"
                raise UserError(
                    f"{where} has no answer: for SQuAD 2.0 name the task squad2"
                )
            words = processing.segment([question.text])[0].split()
            asked = words[: block // 6]
            truncated += asked != words
            labelled = _labelled_windows(question, context, len(asked), block)
            for start, end, label in labelled:
                window = context.subwords[start:end]
                texts.append([" ".join(asked), " ".join(window)])
                places.append([len(questions), len(contexts), start, end - start])
                labels.append(label)
            is_nowhere = all(label == NOWHERE for *_, label in labelled)
            missed += bool(question.answers) and is_nowhere
            questions.append(question.identity)
        contexts.append({"text": passage, "begins": context.begins, "ends": context.ends})
    counts = {"examples": len(labels), "questions": len(questions)}
    counts |= {"truncated": truncated, "answers in no window": missed}
    facts = {"contexts": contexts, "questions": questions, "windows": places}
    return Inputs(list(zip(*texts, strict=True)), counts, labels, facts, [])


def _labelled_windows(
    question: Question, context: Aligned, asked: int, block: int
) -> list[tuple[int, int, str]]:
    """First and end of each window of a question of ``asked`` subwords, and its label."""
    ahead, first, last = asked + 3, -1, -1  # tokens before the window; no answer
    for answer, begin in question.answers[:1]:
        first, last = context.covering(begin, begin + len(answer))
    labelled = []
    for start, end in windows(len(context.subwords), block - 1 - ahead, block // 3):
        label = NOWHERE
        if start <= first and last < end:
            label = f"{ahead + first - start} {ahead + last - start}"
        labelled.append((start, end, label))
    return labelled


def windows(length: int, most: int, stride: int) -> list[tuple[int, int]]:
    """First and end of windows of at most ``most`` subwords, ``stride`` subwords apart."""
    starts = range(0, max(1, length - most + stride), stride)
    return [(start, min(start + most, length)) for start in starts]


def aligned(processing: TextProcessing, text: str) -> Aligned:
    """The subwords of a text, word by word: none crosses white space.

    Where normalising changes a word's length, each stands for all of it.
    """
    words = list(re.finditer(r"\S+", text))
    result = Aligned([], [], [])
    divided = processing.segment([word[0] for word in words])
    for word, pieces in zip(words, map(str.split, divided), strict=True):
        begin, end = word.span()
        bare = [piece.removeprefix(WORD_START).removesuffix(NOT_LAST) for piece in pieces]
        bounds = list(accumulate(map(len, bare), initial=begin))
        exact = bounds[-1] == end
        result.subwords.extend(pieces)
        result.begins.extend(bounds[:-1] if exact else [begin] * len(pieces))
        result.ends.extend(bounds[1:] if exact else [end] * len(pieces))
    return result

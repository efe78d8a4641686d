"""Turn a task's examples into subwords, truncated to the positions of a model."""

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
NO_ANSWER = "0 0"  # label of a window without the answer: <s> as first and last token


class Inputs(NamedTuple):
    """A set of examples for fairseq, in subwords."""

    columns: list[tuple[str, ...]]  # column i has text i of every example
    counts: dict[str, int]
    labels: list[str]
    facts: dict[str, Any]  # what scoring needs beside the model's output
    spans: list[str]  # indices of the first and last token of two spans; <s> is token 0


class Aligned(NamedTuple):
    """The subwords of a text, of which subword i stands for text[begins[i] : ends[i]]."""

    subwords: Subwords
    begins: list[int]
    ends: list[int]

    def covering(self, begin: int, end: int) -> tuple[int, int]:
        """Return the first and the last subword that stand for text[begin:end]."""
        first = bisect_right(self.ends, begin)
        return first, max(first, bisect_left(self.begins, end) - 1)


def read_inputs(
    task: Task, path: Path, processing: TextProcessing, block: int, train: bool
) -> Inputs:
    """Return the examples of an official file, of at most ``block`` tokens with special symbols.

    ``train``: drop and count incomplete examples. UserError as in `read_task` and `read_squad`.
    """
    if task.form == ANSWERS:
        return _read_windows(task, path, processing, block)
    examples, dropped = read_task(task, path, drop=train)
    counts = {"examples": len(examples), "dropped": dropped, "truncated": 0}
    labels = [example.label for example in examples]
    facts = {"labels": labels, "groups": [example.group for example in examples]}
    if task.form == CANDIDATES:
        facts["candidates"] = [example.candidate for example in examples]
    texts, spans = [], []
    columns = zip(*(example.texts for example in examples), strict=True)
    segmented = map(processing.segment, columns)
    for example, *lines in zip(examples, *segmented, strict=True):
        subwords = [line.split() for line in lines]
        parts = _fit_block(subwords, block, task.form == CHOICE)
        counts["truncated"] += parts != subwords
        texts.append([" ".join(part) for part in parts])
        if example.spans:
            spans.append(_span_tokens(example, parts, processing))
    return Inputs(list(zip(*texts, strict=True)), counts, labels, facts, spans)


def _span_tokens(
    example: Example, parts: Sequence[Subwords], processing: TextProcessing
) -> str:
    """Return first and last token of both spans; a text's last subword stands for what is cut."""
    tokens = []
    for index, begin, end in example.spans:
        offset = 1 if index == 0 else len(parts[0]) + 3  # <s>, or <s> text </s> </s>
        last = len(parts[index]) - 1
        ends = align(processing, example.texts[index]).covering(begin, end)
        tokens += [str(offset + min(subword, last)) for subword in ends]
    return " ".join(tokens)


def _fit_block(parts: Sequence[Subwords], block: int, choice: bool) -> list[Subwords]:
    """Truncate one or two texts to a block; for a ``choice``, a context with each option."""
    if not choice:  # <s> first </s>, and </s> second </s>
        return truncate(parts, block - 2 * len(parts))
    context, *options = parts
    pairs = [truncate([context, option], block - 4) for option in options]
    shortest = min((context for context, _ in pairs), key=len)  # serves all options
    return [shortest, *(option for _, option in pairs)]


def truncate(parts: Sequence[Subwords], max_length: int) -> list[Subwords]:
    """Cut subwords off the longest text until all have ``max_length`` subwords together."""
    lengths = [len(part) for part in parts]
    while sum(lengths) > max_length:
        lengths[lengths.index(max(lengths))] -= 1
    return [part[:length] for part, length in zip(parts, lengths, strict=True)]


def _read_windows(
    task: Task, path: Path, processing: TextProcessing, block: int
) -> Inputs:
    """Pair questions with windows over their contexts: <s> question </s> </s> window </s>.

    In a block of 384, windows begin 128 subwords apart, and questions have at most 64. A label is
    the first and last token of the first answer, or `NO_ANSWER` (Devlin et al. 2019, 4.3).
    """
    contexts: list[Any] = []
    questions: list[str] = []
    texts: list[tuple[str, str]] = []  # question and window
    labels: list[str] = []
    places: list[tuple[int, ...]] = []  # indices of question and context, start, length
    truncated = missed = 0
    for passage, group in groupby(read_squad(path), attrgetter("context")):
        context = align(processing, passage)
        for question in group:
            if task.name == "squad1" and not question.answers:
                where = f"{path}, question {question.identity}"
                advice = "for SQuAD 2.0 name the task squad2"
                raise UserError(f"{where} has no answer: {advice}")
            subwords = processing.segment([question.text])[0].split()
            kept = subwords[: block // 6]
            truncated += kept != subwords
            labelled = _labelled_windows(question, context, len(kept), block)
            for start, end, label in labelled:
                window = context.subwords[start:end]
                texts.append((" ".join(kept), " ".join(window)))
                labels.append(label)
                places.append((len(questions), len(contexts), start, end - start))
            if question.answers and all(label == NO_ANSWER for *_, label in labelled):
                missed += 1
            questions.append(question.identity)
        contexts.append({"text": passage, "begins": context.begins, "ends": context.ends})
    counts = {"examples": len(texts), "questions": len(questions)}
    counts |= {"truncated": truncated, "answers in no window": missed}
    columns = list(zip(*texts, strict=True))
    facts = {"contexts": contexts, "questions": questions, "windows": places}
    return Inputs(columns, counts, labels, facts, [])


def _labelled_windows(
    question: Question, context: Aligned, question_length: int, block: int
) -> list[tuple[int, int, str]]:
    """Return start, end and label of each window over a context, in subwords."""
    offset = question_length + 3  # <s> question </s> </s>
    first = last = -1  # no answer: in no window
    for answer, begin in question.answers[:1]:
        first, last = context.covering(begin, begin + len(answer))
    labelled = []
    for start, end in windows(len(context.subwords), block - 1 - offset, block // 3):
        label = NO_ANSWER
        if start <= first and last < end:
            label = f"{offset + first - start} {offset + last - start}"
        labelled.append((start, end, label))
    return labelled


def windows(length: int, max_length: int, stride: int) -> list[tuple[int, int]]:
    """Return start and end of windows of at most ``max_length``, which begin ``stride`` apart."""
    starts = range(0, max(1, length - max_length + stride), stride)
    return [(start, min(start + max_length, length)) for start in starts]


def align(processing: TextProcessing, text: str) -> Aligned:
    """Segment a text word by word and align its subwords with its characters.

    If normalising changes the length of a word, each of its subwords stands for the whole word.
    """
    words = list(re.finditer(r"\S+", text))
    result = Aligned([], [], [])
    segmented = processing.segment([word[0] for word in words])
    for word, pieces in zip(words, map(str.split, segmented), strict=True):
        begin, end = word.span()
        bare = [piece.removeprefix(WORD_START).removesuffix(NOT_LAST) for piece in pieces]
        bounds = list(accumulate(map(len, bare), initial=begin))
        begins, ends = bounds[:-1], bounds[1:]
        if bounds[-1] != end:
            begins = [begin] * len(pieces)
            ends = [end] * len(pieces)
        result.subwords.extend(pieces)
        result.begins.extend(begins)
        result.ends.extend(ends)
    return result

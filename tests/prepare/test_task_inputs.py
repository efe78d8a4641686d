"""The text itself shows which characters each subword stands for."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.task_inputs import align
from fairseq_mhe.prepare.text_processing import TextProcessing
from tests.prepare.conftest import LINES


@pytest.fixture(scope="module")
def processing(prepared: Path) -> TextProcessing:
    """The processing of running text, with each kind of subwords."""
    return replace(open_data(prepared).processing, tokenizer="none")


@pytest.mark.parametrize("text", [*LINES[:40], "  Two\tspaces,  (and\u00a0more) ", "it's\u0007 x"])
def test_each_subword_stands_for_its_own_characters(processing: TextProcessing, text: str) -> None:
    aligned = align(processing, text)
    (line,) = processing.segment([text])
    assert aligned.subwords == line.split()
    if "\u0007" not in text:
        for piece, begin, end in zip(aligned.subwords, aligned.begins, aligned.ends, strict=True):
            assert text[begin:end] == piece.removeprefix("\u2581").removesuffix("@@")
    assert [aligned.begins, aligned.ends] == [sorted(aligned.begins), sorted(aligned.ends)]


def test_subwords_of_a_shortened_word_stand_for_all_of_it(processing: TextProcessing) -> None:
    aligned = align(processing, "the cafe\u0301s are open")
    places = set(zip(aligned.begins, aligned.ends, strict=True))
    assert {(begin, end) for begin, end in places if 4 <= begin < 10} == {(4, 10)}

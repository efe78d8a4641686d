"""Sentences of a data folder's splits come as batches, and a split that is missing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.sentences import batches, sentence_pairs
from fairseq_mhe.prepare.data_folder import DataFolder, load_task, open_data
from tests.fixtures.checkpoints import SENTENCES
from tests.fixtures.models import make_model


def test_a_folder_of_fairseq_preprocess(data: Path) -> None:
    task = load_task(open_data(data))
    pairs = sentence_pairs(task, "test", 20, make_model())
    assert [pair["id"] for pair in pairs] == list(range(20))
    made = batches(task, "test", pairs)
    assert sorted(i for batch in made for i in batch["id"].tolist()) == list(range(20))
    assert len(sentence_pairs(task, "valid", 10_000, make_model())) == SENTENCES


def test_a_damaged_dictionary(tmp_path: Path) -> None:
    for lang in ("en", "de"):
        (tmp_path / f"dict.{lang}.txt").write_text("no count\n")
    with pytest.raises(UserError, match="cannot be read"):
        load_task(DataFolder(tmp_path, ("en", "de")))


def test_a_split_that_is_not_there(data: Path) -> None:
    with pytest.raises(UserError, match="has no split 'dev'"):
        sentence_pairs(load_task(open_data(data)), "dev", 5, make_model())


def test_sentences_that_the_model_has_no_positions_for_are_left_out(data: Path) -> None:
    task = load_task(open_data(data))
    few = make_model(max_source_positions=4, max_target_positions=7)
    pairs = sentence_pairs(task, "test", 10, few)  # of 2 to 10 tokens, again and again
    assert [pair["id"] for pair in pairs] == [0, 1, 2, 9, 10, 11, 18, 19, 20, 27]
    with pytest.raises(UserError, match="has no sentences in 'test' that the model has the posi"):
        sentence_pairs(task, "test", 10, make_model(max_source_positions=1))

"""Sentences of a data folder's splits come as batches, and a split that is missing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.sentences import batches, sentence_pairs
from fairseq_mhe.prepare.data_folder import DataFolder, load_task, open_data
from tests.fixtures.checkpoints import SENTENCES


def test_a_folder_of_fairseq_preprocess(data: Path) -> None:
    task = load_task(open_data(data))
    pairs = sentence_pairs(task, "test", 20)
    assert [pair["id"] for pair in pairs] == list(range(20))
    made = batches(task, "test", pairs)
    assert sorted(i for batch in made for i in batch["id"].tolist()) == list(range(20))
    assert len(sentence_pairs(task, "valid", 10_000)) == SENTENCES


def test_a_damaged_dictionary(tmp_path: Path) -> None:
    for lang in ("en", "de"):
        (tmp_path / f"dict.{lang}.txt").write_text("no count\n")
    with pytest.raises(UserError, match="cannot be read"):
        load_task(DataFolder(tmp_path, ("en", "de")))


def test_a_split_that_is_not_there(data: Path) -> None:
    with pytest.raises(UserError, match="has no split 'dev'"):
        sentence_pairs(load_task(open_data(data)), "dev", 5)

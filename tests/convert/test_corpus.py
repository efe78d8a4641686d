"""Data folders of both kinds are opened, and what is none is refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.corpus import batches, open_data, sentence_pairs
from tests.fixtures.checkpoints import SENTENCES


def test_a_folder_of_fairseq_preprocess(data: Path) -> None:
    found = open_data(data)
    assert (found.source_lang, found.target_lang) == ("en", "de")
    task = found.task()
    pairs = sentence_pairs(found, task, "test", 20)
    assert [pair["id"] for pair in pairs] == list(range(20))
    made = batches(task, "test", pairs)
    assert sorted(i for batch in made for i in batch["id"].tolist()) == list(range(20))
    assert len(sentence_pairs(found, task, "valid", 10_000)) == SENTENCES


def test_a_prepared_folder(tmp_path: Path, data: Path) -> None:
    shutil.copytree(data, tmp_path / "bin")
    steps = {
        "format": 1,
        "state": "complete",
        "source_lang": "en",
        "target_lang": "de",
        "steps": {},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(steps))
    assert open_data(tmp_path).folder == tmp_path / "bin"


def test_what_is_no_data_folder(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UserError, match="no data folder: give one that"):
        open_data(tmp_path)
    with pytest.raises(UserError, match="no data folder"):
        open_data(tmp_path / "nothing")
    shutil.copytree(data, tmp_path / "bin")
    (tmp_path / "bin" / "dict.de.txt").unlink()
    with pytest.raises(UserError, match=r"dict\.de\.txt is missing"):
        open_data(tmp_path / "bin")
    (tmp_path / "bin" / "dict.de.txt").write_text("no count\n")
    with pytest.raises(UserError, match="cannot be read"):
        open_data(tmp_path / "bin").task()


def test_a_split_that_is_not_there(data: Path) -> None:
    found = open_data(data)
    with pytest.raises(UserError, match="has no split 'dev'"):
        sentence_pairs(found, found.task(), "dev", 5)

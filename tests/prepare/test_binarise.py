"""Tests of the binary form: read back by fairseq it says what the subword files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.binarise import binarise, run_logged
from fairseq_mhe.prepare.manifest import read_manifest


def test_fairseq_reads_every_sentence_back(prepared: Path) -> None:
    dictionary = Dictionary.load(str(prepared / "bin" / "dict.de.txt"))
    for split, lang in (("train", "en"), ("train", "de"), ("valid", "en"), ("test", "de")):
        dataset = data_utils.load_indexed_dataset(
            str(prepared / "bin" / f"{split}.en-de.{lang}"), dictionary
        )
        lines = (prepared / "subword" / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()
        assert len(dataset) == len(lines)
        for line, sentence in zip(lines, dataset, strict=True):
            expected = [dictionary.index(token) for token in line.split(" ")] + [dictionary.eos()]
            assert sentence.tolist() == expected


def test_the_dictionary_is_joined_and_knows_all_of_train(prepared: Path) -> None:
    english = (prepared / "bin" / "dict.en.txt").read_text(encoding="utf-8")
    assert english == (prepared / "bin" / "dict.de.txt").read_text(encoding="utf-8")
    tokens = {
        token
        for lang in ("en", "de")
        for token in (prepared / "subword" / f"train.{lang}").read_text(encoding="utf-8").split()
    }
    assert {line.rsplit(" ", 1)[0] for line in english.splitlines()} - tokens <= {
        f"madeupword{number:04}" for number in range(8)
    }
    assert tokens <= {line.rsplit(" ", 1)[0] for line in english.splitlines()}
    assert read_manifest(prepared)["steps"]["binarise"]["counts"]["dictionary"] == english.count(
        "\n"
    )


def test_a_failure_tells_the_last_line_and_the_log(tmp_path: Path) -> None:
    (tmp_path / "subword").mkdir()
    log = tmp_path / "logs" / "binarise.log"
    with pytest.raises(
        UserError, match=r"fairseq-preprocess failed: .*train\.\w\w.*logs/binarise\.log"
    ) as caught:
        binarise(tmp_path / "subword", tmp_path / "bin", ("en", "de"), 1, log)
    assert "\n" not in str(caught.value)
    assert "Traceback" in log.read_text()


def test_a_silent_failure_tells_the_exit_status(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exit status 3"):
        run_logged(["bash", "-c", "exit 3"], tmp_path, tmp_path / "log")

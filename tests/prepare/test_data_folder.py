"""Data folders of both kinds are opened; text that went through a model comes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import FOLDER_VERSION
from fairseq_mhe.prepare.data_folder import open_binary, open_data
from fairseq_mhe.prepare.text_processing import join_bpe, join_sentencepiece
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser


def test_joins_are_those_of_fairseq() -> None:
    """As `--remove-bpe` and `--remove-bpe sentencepiece` do it, written out by hand."""
    assert join_bpe("ein@@ fach so , a@@ b@@ c") == "einfach so , abc"
    assert join_bpe("cut off@@") == "cut off"
    assert join_sentencepiece("▁ein fach ▁so , ▁a b") == "einfach so, ab"


def test_segmented_files_give_the_raw_text_back(prepared: Path) -> None:
    data = open_data(prepared)
    for side, lang in enumerate(data.languages):
        raw = data.text("test", side).read_text(encoding="utf-8").splitlines()
        segmented = data.segmented("test", side).read_text(encoding="utf-8").splitlines()
        if data.manifest["tokenizer"] == "moses":  # what Moses' own rules lose is theirs
            raw = [detokeniser("moses", lang)(tokeniser("moses", lang)(line)) for line in raw]
        assert data.detokenise(segmented, side) == raw


def test_what_is_a_data_folder(tmp_path: Path, data: Path) -> None:
    assert open_binary(data).languages == ("en", "de")
    assert open_binary(data).binary == data
    shutil.copytree(data, tmp_path / "bin")
    with pytest.raises(UserError, match="no data folder: give one of fairseq-mhe"):
        open_binary(tmp_path)
    manifest = {"folder_version": FOLDER_VERSION, "form": "parallel"}
    for state in ("complete", "unfinished"):
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "state": state}))
        if state == "complete":
            assert open_binary(tmp_path).binary == tmp_path / "bin"
    with pytest.raises(UserError, match="is not finished: run the same preparation again"):
        open_binary(tmp_path)
    with pytest.raises(UserError, match="is fairseq's part of a data folder"):
        open_data(tmp_path / "bin")

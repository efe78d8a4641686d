"""Tests of undoing the segmentation: text that went through a model comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.detokenise import detokenise, join_bpe, join_sentencepiece
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser


def test_joins_are_those_of_fairseq() -> None:
    """As `--remove-bpe` and `--remove-bpe sentencepiece` do it, written out by hand."""
    assert join_bpe("ein@@ fach so , a@@ b@@ c") == "einfach so , abc"
    assert join_bpe("cut off@@") == "cut off"
    assert join_sentencepiece("▁ein fach ▁so , ▁a b") == "einfach so, ab"


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("lang", ["en", "de"])
def test_segmented_files_give_the_raw_text_back(prepared: Path, split: str, lang: str) -> None:
    manifest = read_manifest(prepared)
    raw = (prepared / "raw" / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()
    segmented = (prepared / "subword" / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()
    if manifest["tokenizer"] == "moses":  # what Moses' own rules lose is theirs
        raw = [detokeniser("moses", lang)(tokeniser("moses", lang)(line)) for line in raw]
    assert list(detokenise(segmented, manifest, lang)) == raw


def test_the_target_language_is_the_default() -> None:
    manifest = {"subword": "bpe", "tokenizer": "moses", "source_lang": "de", "target_lang": "en"}
    assert list(detokenise(["It 's he@@ re ."], manifest)) == ["It's here."]


@given(st.text(), st.sampled_from(["bpe", "sentencepiece"]), st.sampled_from(["moses", "none"]))
def test_whatever_a_model_says_one_line_comes_back(line: str, subword: str, tokenizer: str) -> None:
    manifest = {"subword": subword, "tokenizer": tokenizer, "target_lang": "de"}
    assert len(list(detokenise([" ".join(line.split())], manifest))) == 1


def test_unknown_segmentation_is_refused() -> None:
    with pytest.raises(UserError, match="does not say how"):
        list(detokenise(["a"], {"subword": "characters", "tokenizer": "none", "target_lang": "de"}))

"""The configuration refuses unusable options before anything is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.parallel_text import prepare
from tests.fixtures.refusals import refuses


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"target_lang": "en"}, "'en'"),
        ({"source_lang": "../en"}, "'../en'"),
        ({"valid": None}, "--valid"),
        ({"hold_out": 9}, "--hold-out"),
        ({"train": (Path("nowhere/a.tsv.gz"),)}, "nowhere/a.tsv.gz"),
        ({"out": Path("text")}, "train.en lies inside"),
    ],
)
def test_unusable_options_are_refused_before_anything_is_written(
    config: PrepareConfig, change: dict[str, Any], named: str
) -> None:
    assert config.valid
    if "out" in change:
        change = {"out": config.valid.parent}
    before = set(config.valid.parents[1].rglob("*"))
    with refuses(named):
        prepare(replace(config, **change))
    assert set(config.valid.parents[1].rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"target_lang": "fr"}, "moses bpe"),
        ({"target_lang": "fr", "subword": "sentencepiece"}, "none sentencepiece"),
        ({"target_lang": "fr", "tokenizer": "none"}, "none sentencepiece"),
        ({"source_lang": "zh_CN"}, "none sentencepiece"),
        ({"target_lang": "zh", "tokenizer": "moses"}, "moses sentencepiece"),
        ({"source_lang": "ar"}, "moses bpe"),
    ],
)
def test_default_tokeniser_and_subwords_suit_the_languages(
    config: PrepareConfig, change: dict[str, Any], expected: str
) -> None:
    options = replace(config, **change).checked()
    assert f"{options.tokenizer} {options.subword}" == expected

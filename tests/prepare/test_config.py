"""The configuration chooses what suits the languages."""

from dataclasses import replace
from typing import Any

import pytest

from fairseq_mhe.prepare.config import PrepareConfig


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

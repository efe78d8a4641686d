"""Tests of the configuration: whatever cannot work is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import PrepareConfig, with_defaults
from fairseq_mhe.prepare.pipeline import prepare


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subword": "wordpiece"}, "unknown subword 'wordpiece'; choose from bpe, sentencepiece"),
        ({"tokenizer": "perl"}, "unknown tokenizer 'perl'; choose from moses, none"),
        ({"model_type": "char"}, "unknown model type 'char'; choose from unigram, bpe"),
        ({"target_lang": "en"}, "source and target language are both 'en'"),
        ({"source_lang": "../en"}, r"'\.\./en' cannot be a language's name"),
        ({"source_lang": "en-GB"}, "'en-GB' cannot be a language's name"),
        ({"vocab_size": 0}, "the vocabulary size is 0; it must be at least 1"),
        ({"max_tokens": -1}, "the maximum of tokens is -1"),
        ({"max_ratio": 0.5}, "the maximal ratio is 0.5"),
        ({"workers": 0}, "the number of workers is 0"),
        ({"train": ()}, "no training text"),
        ({"valid": None}, "no text for valid is named"),
        (
            {"valid": None, "test": None, "hold_out": 2},
            "no text for valid and test is named; .* N at least 3",
        ),
        ({"hold_out": 9}, "nothing is to be held out"),
        ({"train": (Path("nowhere/a.tsv.gz"),)}, r"nowhere/a\.tsv\.gz does not exist"),
        ({"valid": Path("nowhere/valid")}, r"nowhere/valid\.en is not there"),
    ],
)
def test_bad_options_are_refused(
    config: PrepareConfig, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        prepare(replace(config, **change))
    assert not config.out.exists()


def test_inputs_inside_the_output_are_refused(config: PrepareConfig) -> None:
    with pytest.raises(UserError, match="lies inside the output folder"):
        prepare(replace(config, out=config.valid.parent))


def test_all_cores_work_unless_told() -> None:
    config = PrepareConfig((Path("a"),), Path("b"), Path("c"), "en", "de", Path("out"))
    assert config.cores == cores()
    assert (
        PrepareConfig((Path("a"),), Path("b"), Path("c"), "en", "de", Path("out"), workers=3).cores
        == 3
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"target_lang": "fr"}, ("moses", "bpe")),
        ({"target_lang": "fr", "subword": "sentencepiece"}, ("none", "sentencepiece")),
        ({"target_lang": "fr", "tokenizer": "none"}, ("none", "sentencepiece")),
        ({"target_lang": "fr", "tokenizer": "none", "subword": "bpe"}, ("none", "bpe")),
        ({"source_lang": "ja"}, ("none", "sentencepiece")),
        ({"target_lang": "zh_CN"}, ("none", "sentencepiece")),
        ({"target_lang": "zh", "tokenizer": "moses"}, ("moses", "sentencepiece")),
        ({"target_lang": "my", "subword": "bpe"}, ("none", "bpe")),
        ({"target_lang": "ko"}, ("none", "sentencepiece")),
        ({"target_lang": "ar", "tokenizer": "moses"}, ("moses", "bpe")),
        ({"source_lang": "ar"}, ("moses", "bpe")),
    ],
)
def test_what_is_left_open_goes_with_the_languages(
    config: PrepareConfig, change: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = with_defaults(replace(config, **change))
    assert (found.tokenizer, found.subword) == expected

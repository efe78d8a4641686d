"""The configuration refuses unusable options before anything is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.parallel_text import add_arguments, prepare


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_lang": "en"}, "source and target language are both 'en'"),
        ({"source_lang": "../en"}, r"'\.\./en' is not a language code"),
        ({"source_lang": "en-GB"}, "'en-GB' is not a language code"),
        ({"valid": None}, "no text for valid: name it"),
        ({"hold_out": 9}, "are given: remove --hold-out"),
        ({"out": Path("a:b")}, "fairseq splits paths at colons"),
        ({"train": (Path("nowhere/a.tsv.gz"),)}, r"nowhere/a\.tsv\.gz does not exist"),
        ({"valid": Path("nowhere/valid")}, r"nowhere/valid\.en does not exist .*without its \.en"),
    ],
)
def test_unusable_options_are_refused_before_anything_is_written(
    config: PrepareConfig, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        prepare(replace(config, **change))
    assert not config.out.exists()
    with pytest.raises(UserError, match="lies inside the output folder"):
        prepare(replace(config, out=config.valid.parent))


NUMBERS = [
    "vocab-size 0",
    "vocab-size 3000000000",
    "max-tokens -1",
    "max-ratio 0.5",
    "max-dropped -1",
    "hold-out 2",
]


@pytest.mark.parametrize("words", NUMBERS)
def test_numbers_out_of_range_are_refused(capsys: pytest.CaptureFixture[str], words: str) -> None:
    parser = Parser(prog="prepare")
    add_arguments(parser)
    needed = ["--train", "a", "--source-lang", "en", "--target-lang", "de", "--out", "d"]
    assert parser.parse_args(needed).workers == cores()
    with pytest.raises(SystemExit):
        parser.parse_args([*needed, *f"--{words}".split()])
    assert f"argument --{words.split()[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"target_lang": "fr"}, "moses bpe"),
        ({"target_lang": "fr", "subword": "sentencepiece"}, "none sentencepiece"),
        ({"target_lang": "fr", "tokenizer": "none"}, "none sentencepiece"),
        ({"source_lang": "zh_CN"}, "none sentencepiece"),
        ({"target_lang": "zh", "tokenizer": "moses"}, "moses sentencepiece"),
        ({"target_lang": "ko"}, "none sentencepiece"),
        ({"target_lang": "ar", "tokenizer": "moses"}, "moses bpe"),
        ({"source_lang": "ar"}, "moses bpe"),
    ],
)
def test_default_tokeniser_and_subwords_suit_the_languages(
    config: PrepareConfig, change: dict[str, Any], expected: str
) -> None:
    options = replace(config, **change).checked()
    assert f"{options.tokenizer} {options.subword}" == expected

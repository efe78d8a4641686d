"""The configuration refuses unusable options before anything is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.parallel_text import add_arguments, prepare
from tests.fixtures.refusals import refuses


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"target_lang": "en"}, "'en'"),
        ({"source_lang": "../en"}, "'../en'"),
        ({"source_lang": "en-GB"}, "'en-GB'"),
        ({"valid": None}, "no text for valid: name it (--valid"),
        ({"hold_out": 9}, "--hold-out"),
        ({"out": Path("a:b")}, "a:b"),
        ({"train": (Path("nowhere/a.tsv.gz"),)}, "nowhere/a.tsv.gz does not exist"),
        ({"valid": Path("nowhere/valid")}, "nowhere/valid.en does not exist"),
        ({"out": Path("text")}, "train.en lies inside"),
    ],
)
def test_unusable_options_are_refused_before_anything_is_written(
    config: PrepareConfig, change: dict[str, Any], named: str
) -> None:
    assert config.valid
    if change.get("out") == Path("text"):
        change = {"out": config.valid.parent}
    before = set(config.valid.parents[1].rglob("*"))
    with refuses(named):
        prepare(replace(config, **change))
    assert set(config.valid.parents[1].rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    ["vocab-size 0", "vocab-size 3000000000", "max-ratio 0.5", "max-dropped -1", "hold-out 2"],
)
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

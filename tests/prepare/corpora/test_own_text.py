"""The command line: options reach the preparation, errors are one line with exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.corpora import own_text
from fairseq_mhe.prepare.progress import Report


def words(config: PrepareConfig, *more: str) -> list[str]:
    prefixes = [
        "--train",
        *map(str, config.train),
        "--valid",
        str(config.valid),
        "--test",
        str(config.test),
    ]
    return [
        "prepare",
        *prefixes,
        "--source-lang",
        "en",
        "--target-lang",
        "de",
        "--out",
        str(config.out),
        *more,
    ]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[PrepareConfig]:
    """The configurations that the command hands on; nothing is prepared."""
    configs: list[PrepareConfig] = []

    def remember(config: PrepareConfig, report: Report) -> Path:
        configs.append(config)
        return config.out

    monkeypatch.setattr(own_text, "prepare", remember)
    return configs


def test_every_option_is_handed_on(
    config: PrepareConfig, seen: list[PrepareConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    options = (
        "--subword sentencepiece --model-type bpe --vocab-size 77 --tokenizer moses --workers 3"
    )
    limits = (
        "--max-tokens 99 --max-ratio 2.5 --punctuation --lowercase --hold-out 9 --max-dropped 33"
    )
    assert cli.main(words(config, *options.split(), *limits.split())) == 0
    assert seen == [
        PrepareConfig(
            train=config.train,
            valid=config.valid,
            test=config.test,
            source_lang="en",
            target_lang="de",
            out=config.out,
            subword="sentencepiece",
            vocab_size=77,
            tokenizer="moses",
            model_type="bpe",
            max_tokens=99,
            max_ratio=2.5,
            punctuation=True,
            lowercase=True,
            hold_out=9,
            max_dropped=33,
            workers=3,
        )
    ]
    assert capsys.readouterr().out == f"{config.out}\n"

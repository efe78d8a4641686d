"""``fairseq-mhe prepare``: every option reaches the preparation."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.corpora import own_text


def test_every_option_is_handed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[PrepareConfig] = []

    def remember(config: PrepareConfig) -> Path:
        seen.append(config)
        return config.out

    monkeypatch.setattr(own_text, "prepare", remember)
    words = (
        "prepare --train a b --valid v --test t --source-lang en --target-lang de --out data "
        "--subword sentencepiece --model-type bpe --vocab-size 77 --tokenizer moses --workers 3 "
        "--max-tokens 99 --max-ratio 2.5 --punctuation --lowercase --hold-out 9 --max-dropped 33"
    )
    assert cli.main(words.split()) == 0
    assert seen == [
        PrepareConfig(
            train=(Path("a"), Path("b")),
            valid=Path("v"),
            test=Path("t"),
            source_lang="en",
            target_lang="de",
            out=Path("data"),
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
    assert capsys.readouterr().out == "data\n"

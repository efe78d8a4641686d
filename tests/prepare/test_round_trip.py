"""Moses' tokeniser serves where it can be undone; the language decides what options leave open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.config import PrepareConfig, input_files
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.pipeline import prepare
from fairseq_mhe.prepare.round_trip import LEAST_BLEU, round_trip, settled

ARABIC = "مرحبا، كيف حالك؟ أهلا بكم: نحن هنا؛ شكرا."
CHINESE = "他说：“你好，世界！”然后（慢慢地）走了。"  # noqa: RUF001


def into(config: PrepareConfig, language: str, line: str = "", **options: str) -> PrepareConfig:
    """The configuration with the target's files under another name; with ``line`` in each line."""
    for prefix in (*config.train, config.valid, config.test):
        path = Path(f"{prefix}.de")
        lines = path.read_text(encoding="utf-8").splitlines()
        text = [f"{number} {line}" for number in range(len(lines))] if line else lines
        Path(f"{prefix}.{language}").write_text("\n".join(text) + "\n", encoding="utf-8")
    return replace(config, target_lang=language, **options)


@pytest.mark.parametrize(
    ("language", "options", "expected"),
    [
        ("fr", {}, ("moses", "bpe")),
        ("fr", {"subword": "sentencepiece"}, ("none", "sentencepiece")),
        ("fr", {"tokenizer": "none"}, ("none", "sentencepiece")),
        ("fr", {"tokenizer": "none", "subword": "bpe"}, ("none", "bpe")),
        ("ja", {}, ("none", "sentencepiece")),
        ("zh_CN", {}, ("none", "sentencepiece")),
        ("my", {"subword": "bpe"}, ("none", "bpe")),
    ],
)
def test_what_is_left_open_goes_with_the_language(
    config: PrepareConfig, language: str, options: dict[str, str], expected: tuple[str, str]
) -> None:
    config = into(config, language, **options)
    found, measured = settled(config, input_files(config))
    assert (found.tokenizer, found.subword) == expected
    assert (measured is not None) == (found.tokenizer == "moses")


def test_moses_is_not_used_where_it_cannot_be_undone(
    config: PrepareConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_manifest(prepare(into(config, "ar", ARABIC)))
    assert manifest["round_trip"]["bleu"] < LEAST_BLEU
    assert (manifest["tokenizer"], manifest["subword"]) == ("none", "sentencepiece")
    told = capsys.readouterr().err.splitlines()[0]
    assert "340 references (ar)" in told
    assert "|tok:13a|" in told
    assert told.endswith("too little, no tokeniser is used")


def test_the_round_trip_is_recorded_and_printed(
    config: PrepareConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_manifest(prepare(config))["round_trip"]
    assert found["bleu"] > 99
    assert (found["language"], found["lines"]) == ("de", 340)
    assert f"BLEU {found['bleu']:.2f} ({found['signature']})" in capsys.readouterr().err


def test_moses_by_name_is_refused_where_it_does_not_serve(config: PrepareConfig) -> None:
    with pytest.raises(UserError, match=r"\|tok:13a\|.* less than 98: .* leave --tokenizer away"):
        prepare(into(config, "zh", CHINESE, tokenizer="moses"))
    assert not config.out.exists()


def test_a_text_of_short_lines_is_measured_too() -> None:
    """Labels of an interface: none has four tokens, without which BLEU is otherwise 0."""
    assert round_trip(["Licht an", "Fenster öffnen"], "de").bleu == 100


def test_text_without_a_reference_is_told(config: PrepareConfig) -> None:
    Path(f"{config.train[0]}.de").write_text("\n" * 300)
    with pytest.raises(UserError, match=r"cleaning leaves no pair of .*empty 300"):
        prepare(replace(config, valid=None, test=None, hold_out=9))

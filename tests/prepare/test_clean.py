"""Tests of cleaning: what is kept, and that every dropped pair is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.prepare.config import SPLITS, PrepareConfig
from fairseq_mhe.prepare.parallel_text import clean_pairs, usual_ratio
from fairseq_mhe.prepare.text_processing import normalise

Pair = tuple[str, str]
MOSES = PrepareConfig(
    train=(Path("a"),), source_lang="en", target_lang="de", out=Path("b"), tokenizer="moses"
)


def texts(pairs: list[Pair], config: PrepareConfig, folder: str = "raw") -> list[Pair]:
    """The kept pairs, plain or tokenised."""
    clean, _ = clean_pairs(pairs, config)
    sides = [clean.get((folder, lang), b"").decode().split("\n") for lang in config.langs]
    return [pair for pair in zip(*sides, strict=True) if any(pair)]


@pytest.mark.parametrize(
    ("pair", "fate"),
    [
        (("a b c", "d e f"), "kept"),
        (("a b c", "d e"), "kept"),
        (("a b c d", "d e"), "ratio"),
        (("d e", "a b c d"), "ratio"),
        (("", "d"), "empty"),
        (("a", " \t "), "empty"),
        (("\u2581", "\u2581 "), "empty"),
        (("a " * 250, "b " * 250), "kept"),
        (("a " * 251, "b " * 250), "too_long"),
        (("a " * 10_000, "b"), "too_long"),
        (("x" * 2001, "y" * 2000), "kept"),
    ],
)
def test_each_pair_meets_its_fate(pair: Pair, fate: str) -> None:
    assert clean_pairs([pair], MOSES)[1] == {fate: 1}
    assert len(texts([pair], MOSES)) == (fate == "kept")
    as_test = "kept" if fate == "ratio" else fate
    assert clean_pairs([pair], MOSES, "test")[1] == {as_test: 1}


def test_length_is_counted_in_tokens_of_the_tokeniser() -> None:
    pair = ("Yes, no.", "Ja, nein.")  # two words, four tokens
    assert clean_pairs([pair], replace(MOSES, max_tokens=3))[1] == {"too_long": 1}
    config = replace(MOSES, max_tokens=4)
    assert texts([pair], config) == [pair]
    assert texts([pair], config, "tokenised") == [("Yes , no .", "Ja , nein .")]


def test_without_a_tokeniser_length_is_counted_in_characters() -> None:
    """Beside what is usual: a Chinese sentence has far fewer than an English one."""
    config = replace(MOSES, tokenizer="none", target_lang="zh", max_tokens=20)
    pairs = [
        ("The weather is fine in the mountains today", "今天山里天气很好"),
        ("Yes, no", "是"),
    ]
    wrong = [("The weather is fine in the mountains today", "今"), ("x" * 161, "今" * 40)]
    usual = usual_ratio([*pairs, *[("", "今"), ("a", "")], pairs[0]])
    assert usual == pytest.approx(8 / 42)
    assert clean_pairs(pairs, config, "train", usual)[1] == {"kept": 2}
    assert clean_pairs(wrong, config, "train", usual)[1] == {"ratio": 1, "too_long": 1}
    for split in SPLITS:
        pair = ("word " * 30, "Wort " * 30)
        german = replace(config, target_lang="de")
        assert clean_pairs([pair], german, split)[1] == {"kept": 1}


def test_line_breaks_of_every_kind_become_spaces() -> None:
    # Each of these ends a line for str.splitlines or for a file opened as text.
    assert normalise("a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\u00a0i") == "a b c d e f g h i"
    assert normalise(" u\u0308ber\x07 ") == "über"
    assert normalise("u\x07\u0308ber") == "über"
    assert normalise("a\u2581b \u2581") == "a b"  # SentencePiece's mark of a space


def test_the_plain_text_keeps_quotes_dashes_and_capitals() -> None:
    line = "\u201eSo\u201c \u2013 Mr.\tX\u00a0\u202f5\u200b% \u00bd u\u0308ber\x07"
    ((kept, _),) = texts([(line, line)], replace(MOSES, punctuation=True))
    assert kept == "\u201eSo\u201c \u2013 Mr. X 5\u200b% \u00bd \u00fcber"


@given(st.text())
def test_a_normalised_line_is_one_line_and_stays_as_it_is(text: str) -> None:
    line = normalise(text)
    assert len(line.splitlines()) <= 1
    assert normalise(line) == line
    assert line.split() == line.split(" ") or line == ""


@given(st.lists(st.tuples(st.text(), st.text())))
def test_every_pair_is_counted_once(pairs: list[Pair]) -> None:
    clean, fates = clean_pairs(pairs, MOSES)
    assert fates.total() == len(pairs)
    assert {text.count(b"\n") for text in clean.values()} <= {fates["kept"]}

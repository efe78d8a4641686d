"""Tests of cleaning: what is kept, and that every dropped pair is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.prepare.clean import CleanOptions, clean_pairs, normalise, options_of, usual_ratio
from fairseq_mhe.prepare.config import SPLITS, PrepareConfig

Pair = tuple[str, str]

OPTIONS = CleanOptions("en", "de", "none", max_tokens=250, max_ratio=1.5)


def texts(pairs: list[Pair], options: CleanOptions, folder: str = "raw") -> list[Pair]:
    """The kept pairs, plain or tokenised."""
    sides = [side.decode().split("\n") for side in clean_pairs(pairs, options).texts[folder]]
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
        (("a " * 250, "b " * 250), "kept"),
        (("a " * 251, "b " * 250), "too_long"),
        (("a " * 10_000, "b"), "too_long"),
        (("x" * 2001, "y" * 2000), "kept"),
    ],
)
def test_each_pair_meets_its_fate(pair: tuple[str, str], fate: str) -> None:
    assert clean_pairs([pair], OPTIONS).counts == {fate: 1}
    assert len(texts([pair], OPTIONS)) == (fate == "kept")


def test_without_a_ratio_only_length_counts() -> None:
    options = CleanOptions("en", "de", "none", max_tokens=250, max_ratio=None)
    assert clean_pairs([("a " * 200, "b")], options).counts == {"kept": 1}


def test_length_is_counted_in_tokens_of_the_tokeniser() -> None:
    long = CleanOptions("en", "de", "moses", 2, None)
    assert clean_pairs([("x" * 99, "y" * 99)], long).counts == {"kept": 1}
    pair = ("Yes, no.", "Ja, nein.")  # two words, four tokens
    assert clean_pairs([pair], CleanOptions("en", "de", "none", 2, None)).counts == {"kept": 1}
    moses = clean_pairs([pair], CleanOptions("en", "de", "moses", 2, None))
    assert moses.counts == {"too_long": 1}
    options = CleanOptions("en", "de", "moses", 4, None)
    assert texts([pair], options) == [pair]
    assert texts([pair], options, "tokenised") == [("Yes , no .", "Ja , nein .")]


def test_without_a_tokeniser_length_is_counted_in_characters() -> None:
    """Beside what is usual: a Chinese sentence has far fewer than an English one."""
    options = CleanOptions("en", "zh", "none", 20, max_ratio=1.5, characters=True)
    pairs = [("The weather is fine in the mountains today", "今天山里天气很好"), ("Yes, no", "是")]
    wrong = [("The weather is fine in the mountains today", "今"), ("x" * 161, "今" * 40)]
    usual = usual_ratio([*pairs, *[("", "今"), ("a", "")], pairs[0]])
    assert usual == pytest.approx(8 / 42)
    assert clean_pairs(pairs, options, usual).counts == {"kept": 2}
    assert clean_pairs(wrong, options, usual).counts == {"ratio": 1, "too_long": 1}


@pytest.mark.parametrize("ratio", [1.5, None])
def test_without_a_tokeniser_no_split_counts_words(
    config: PrepareConfig, ratio: float | None
) -> None:
    """A pair that train keeps is not too long for valid and test."""
    config = replace(config, tokenizer="none", max_ratio=ratio)
    for split in SPLITS:
        pair = ("word " * 260, "Wort " * 260)
        assert clean_pairs([pair], options_of(config, split)).counts == {"kept": 1}


def test_sentencepieces_mark_is_a_space() -> None:
    assert normalise("a\u2581b \u2581") == "a b"
    assert clean_pairs([("\u2581", "\u2581 ")], OPTIONS).counts == {"empty": 1}


def test_line_breaks_of_every_kind_become_spaces() -> None:
    # Each of these ends a line for str.splitlines or for a file opened as text.
    assert normalise("a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\u00a0i") == "a b c d e f g h i"
    assert normalise(" u\u0308ber\x07 ") == "über"
    assert normalise("u\x07\u0308ber") == "über"


def test_the_plain_text_is_the_text_but_for_what_the_documentation_says() -> None:
    """Quotes, dashes, invisible characters and capitals stay."""
    line = "\u201eSo\u201c \u2013 Mr.\tX\u00a0\u202f5\u200b% \u00bd u\u0308ber\x07"
    options = replace(OPTIONS, tokenizer="moses", punctuation=True)
    assert (
        texts([(line, line)], options)[0][0]
        == "\u201eSo\u201c \u2013 Mr. X 5\u200b% \u00bd \u00fcber"
    )
    told = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    row = next(line for line in told.splitlines() if line.startswith("| `raw/"))
    assert "but for white space, composition and control characters (*Normalise*, below)" in row
    assert "`raw/` keeps the text" not in told


@given(st.text())
def test_a_normalised_line_is_one_line_and_stays_as_it_is(text: str) -> None:
    line = normalise(text)
    assert len(line.splitlines()) <= 1
    assert normalise(line) == line
    assert line.split() == line.split(" ") or line == ""


@given(st.lists(st.tuples(st.text(), st.text())))
def test_every_pair_is_counted_once(pairs: list[tuple[str, str]]) -> None:
    clean = clean_pairs(pairs, OPTIONS)
    assert clean.counts.total() == len(pairs)
    assert [text.count(b"\n") for text in clean.texts["raw"]] == [clean.counts["kept"]] * 2

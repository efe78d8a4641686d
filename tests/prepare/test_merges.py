"""Merges are subword-nmt's, byte for byte: of real words, and of those that it counts oddly."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from subword_nmt.learn_bpe import learn_bpe

from fairseq_mhe.prepare.merges import best_merges
from tests.fixtures.text import Pairs


def subword_nmts(words: Counter[str], merges: int) -> str:
    codes = io.StringIO()
    told = io.StringIO("\n".join(f"{word} {count}" for word, count in words.items()))
    learn_bpe(told, codes, merges, is_dict=True)
    return codes.getvalue()


def ours(words: Counter[str], merges: int) -> str:
    lines = [f"{first} {second}\n" for first, second in best_merges(Counter(words), merges)]
    return "".join(["#version: 0.2\n", *lines])


def test_of_real_words(corpus: dict[str, Pairs], monkeypatch: pytest.MonkeyPatch) -> None:
    """Until no pair is left, and however neighbours are counted."""
    words = Counter(w for pair in corpus["train"][:200] for side in pair for w in side.split())
    expected = subword_nmts(words, 5000)
    for many in (3, 500):
        monkeypatch.setattr("fairseq_mhe.prepare.merges.MANY", many)
        assert ours(words, 5000) == expected
    assert ours(words, 300) == subword_nmts(words, 300)


# Few letters: runs of one symbol, and the same symbol of other parts, in nearly every word.
WORDS = st.sampled_from(["ab", "abc", "a</w>", "a\\\u6f22", "abcdefgh"]).flatmap(
    lambda letters: st.dictionaries(
        st.text(letters, min_size=2, max_size=20), st.integers(1, 50), min_size=1, max_size=30
    )
)


# The symbol of a last letter, and the same of letters inside.
@example({"a</w>xa": 90, "ba</w>b": 100, "pq": 120}, 50)
@settings(max_examples=100)
@given(WORDS, st.sampled_from([5, 50, 400]))
def test_of_words_that_are_counted_oddly(words: dict[str, int], merges: int) -> None:
    assert ours(Counter(words), merges) == subword_nmts(Counter(words), merges)


def test_no_more_merges_than_pairs_that_occur_twice() -> None:
    assert list(best_merges(Counter({"ab": 1}), 10)) == []
    assert list(best_merges(Counter({"ab": 2}), 10)) == [("a", "b</w>")]

"""Tests of sentences: cut where both sides agree, not at abbreviations."""

from __future__ import annotations

import pytest

from debian.man import unescape
from debian.text import decode, plain, sentence_pairs, sentences


def test_sentences() -> None:
    assert sentences("One is here. Two, e.g. This, too. (Three!) Four?") == [
        "One is here.",
        "Two, e.g. This, too.",
        "(Three!)",
        "Four?",
    ]
    assert sentences("Dies gilt z. B. Für A. Müller. Ende.") == [
        "Dies gilt z. B. Für A. Müller.",
        "Ende.",
    ]
    assert sentences("see version 2. The") == ["see version 2. The"]


def test_paragraphs_are_cut_where_both_sides_agree() -> None:
    assert sentence_pairs("One. Two words.", "Eins. Zwei Worte.") == [
        ("One.", "Eins."),
        ("Two words.", "Zwei Worte."),
    ]
    assert sentence_pairs("One. Two words.", "Eins, zwei Worte.") == [
        ("One. Two words.", "Eins, zwei Worte.")
    ]
    odd = (
        "Yes. This is a very long sentence of many words.",
        "Ja, das ist ein sehr langer Satz mit vielen Worten. So.",
    )
    assert sentence_pairs(*odd) == [odd]


def test_plain_and_decoded() -> None:
    assert plain(" a\u00ad\u200bb\n\tu\u0308\u00a0c ") == "ab ü c"
    assert plain(unescape(r"a\[u0000]b\[uD83D]c")) == "abc"  # no file could hold it
    assert decode("\ufeffä".encode()) == decode(b"\xe4") == "ä"
    with pytest.raises(ValueError, match="neither"):
        decode(b"\xe4\x81")

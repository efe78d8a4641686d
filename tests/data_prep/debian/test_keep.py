"""Tests of the filter: a reason for each bad pair, and none for good ones."""

from __future__ import annotations

import pytest

from debian.keep import reason_to_drop

GOOD = [
    ("Open the selected file", "Die ausgewählte Datei öffnen"),
    ("The X library is part of Y.", "Die Bibliothek X ist ein Teil von Y."),
]
BAD = [
    ("few_words", "Open file", "Datei öffnen"),
    ("too_long", "a word " * 41, "ein Wort " * 41),
    ("ratio", "This is a rather long sentence, is it not?", "Ja, das ist."),
    ("signs", "a b c == != <= >= ## %% && || ++", "d e f == != <= >= ## %% && || ++"),
    ("script", "The letter д is first", "Der Buchstabe д ist erster"),
    ("copied", "set the file mode bits", "set the file mode bits"),
    ("copied", "Linux kernel module tools package", "Linux kernel module tools Paket"),
    ("language", "All of these are for you", "Choose what is good for you and me"),
    ("language", "Dies ist nicht gut für alle", "Jenes taugt wenig bei manchen Leuten"),
    ("no_text_within", "as shown in \ufffc on the right", "wie in \ufffc rechts zu sehen"),
]


@pytest.mark.parametrize("pair", GOOD)
def test_good_pairs_are_kept(pair: tuple[str, str]) -> None:
    assert reason_to_drop(pair) is None


@pytest.mark.parametrize(("reason", "english", "german"), BAD)
def test_bad_pairs_are_dropped(reason: str, english: str, german: str) -> None:
    assert reason_to_drop((english.strip(), german.strip())) == reason

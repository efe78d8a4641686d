"""Tests of alignment: by structure, around what one side lacks, and not where structures differ."""

from __future__ import annotations

from debian.align import align

TEXTS = [
    "A short one.",
    "A text that is rather longer than the first one is.",
    "Chapter 7 of 12.",
    "The end, at last, of it all.",
]


def test_the_same_structure_is_taken_as_it_is() -> None:
    english = [("h1", "Files"), *(("p", text) for text in TEXTS)]
    german = [("h1", "Alles über Dateien"), *(("p", text.upper()) for text in TEXTS)]
    assert align(english, german) == [
        ("Files", "Alles über Dateien"),
        *((text, text.upper()) for text in TEXTS),
    ]


def test_what_one_side_lacks_is_left_out() -> None:
    english = [("p", text) for text in TEXTS]
    german = [("p", text.upper()) for number, text in enumerate(TEXTS) if number != 1]
    assert align(english, german) == [
        (text, text.upper()) for number, text in enumerate(TEXTS) if number != 1
    ]


def test_headings_of_different_books_are_not_paired() -> None:
    english = [("h1", f"A heading of the book {n}") for n in range(8)]
    german = [
        *(("h2", f"Noch eine {n}") for n in range(6)),
        ("h1", "Eine Überschrift hier"),
        ("h1", "Das Ende des Buches 7"),
    ]
    assert align(english, german) == []
    assert align([], german) == []

"""Tests of LyX's documents: paragraphs without formulas, notes and commands."""

from __future__ import annotations

from debian.lyx import blocks, read_lyx

DOCUMENT = """\\lyxformat 544
\\begin_body
\\begin_layout Title
{0}
\\end_layout
\\begin_layout Standard
{1}
\\begin_inset Quotes eld
\\end_inset
LyX
\\begin_inset Quotes erd
\\end_inset
\\begin_inset space ~
\\end_inset

\\emph on
\\begin_inset Flex Code
status collapsed

\\begin_layout Plain Layout
{2}
\\end_layout
\\end_inset
\\SpecialChar ldots

\\begin_inset Note Note
\\begin_layout Plain Layout
hidden
\\end_layout
\\end_inset
\\end_layout
\\end_body
"""


def test_a_formula_leaves_a_mark() -> None:
    document = (
        "\\begin_layout Standard\nas\n\\begin_inset Formula $x$\n\\end_inset\n says\n\\end_layout\n"
    )
    assert blocks(document) == [("Standard", "as\ufffc says")]


def test_paragraphs() -> None:
    english = DOCUMENT.format("A manual", "The program ", "is good")
    german = DOCUMENT.format("Ein Handbuch", "Das Programm ", "ist gut")
    assert read_lyx(english.encode(), german.encode()) == [
        ("A manual", "Ein Handbuch"),
        ('The program "LyX" is good…', 'Das Programm "LyX" ist gut…'),
    ]

"""Tests of LibreOffice's help: paragraphs by number, and one variant of what differs by system."""

from __future__ import annotations

import pytest

from debian.libreoffice import read_libreoffice

PAGE = """<html><head><title>x</title></head><body><p>No number</p><h1 id="hd_id1">{0}</h1>
<p id="par_id2">{1} <span class="switchinline"><span hidden="true" id="MACx" class="MAC"
>{2}</span><span hidden="true"
id="defaultx">{3}</span></span>+Z.</p>{4}<script>var x;</script></body></html>"""


def test_paragraphs_of_the_same_number() -> None:
    english = PAGE.format("Undo", "Press", "Command", "Ctrl", '<p id="par_id3">English only</p>')
    german = PAGE.format(
        "Rückgängig", "Drücken Sie", "Befehl", "Strg", '<p id="par_id4">Nur deutsch</p>'
    )
    assert read_libreoffice(english.encode(), german.encode()) == [
        ("Undo", "Rückgängig"),
        ("Press Ctrl+Z.", "Drücken Sie Strg+Z."),
    ]


@pytest.mark.parametrize("page", [b"", b" \n", b"<!-- nothing -->"])
def test_an_empty_page_is_not_readable(page: bytes) -> None:
    with pytest.raises((ValueError, SyntaxError), match="empty"):
        read_libreoffice(b"<p id='par_id1'>Text</p>", page)

"""Tests of gettext's catalogues: contexts, plurals, credits, KDE's marks, lists, and encodings."""

from __future__ import annotations

import pytest

from debian.catalogues import read_catalogue
from tests.data_prep.debian.conftest import catalogue


def test_context_and_plurals() -> None:
    found = list(
        read_catalogue(
            catalogue(
                {
                    "File": {"msgctxt": "menu", "msgstr": "Datei"},
                    "%d file": {
                        "msgid_plural": "%d files",
                        "msgstr_plural": {0: "%d Datei", 1: "%d Dateien"},
                    },
                }
            )
        )
    )
    assert sorted(found) == [("File", "Datei"), ("X file", "X Datei"), ("X files", "X Dateien")]


@pytest.mark.parametrize(
    "entry",
    [
        {"translator-credits": "Jemand <a@b.c>"},
        {"Your names": {"msgctxt": "NAME OF TRANSLATORS", "msgstr": "Jemand"}},
        {"Names": {"msgctxt": "NAME OF TRANSLATORS", "msgstr": "Jemand"}},
        {"Your emails": "a@b.c"},
        {"translator_credits-PLEASE ADD YOURSELF HERE": "Jemand"},
        {"": ""},
    ],
)
def test_credits_are_no_translations(entry: dict[str, object]) -> None:
    assert list(read_catalogue(catalogue({"One": "Eins", **entry}))) == [("One", "Eins")]


@pytest.mark.parametrize(
    ("message", "translation", "expected"),
    [
        ("_: menu entry\nOpen", "Öffnen", [("Open", "Öffnen")]),
        ("_n: a file\nsome files", "eine Datei\nDateien", [("a file", "eine Datei")]),
        ("Open %1", "%1 öffnen|/|$[gen %1] öffnen", [("Open X", "X öffnen")]),
        ("<b>One</b>\n\nTwo", "<b>Eins</b>\n\nZwei", [("One", "Eins"), ("Two", "Zwei")]),
        ("One\n\nTwo", "Eins", []),
        ("A:\n  -a  all\n  -b  both", "B:\n  -a  alle", []),
        ("A:\n  -a  all", "B:\n  -a  alle", [("A:", "B:"), ("  -a  all", "  -a  alle")]),
        ("%s is %s", "%s", []),
    ],
)
def test_messages(message: str, translation: str, expected: list[tuple[str, str]]) -> None:
    assert list(read_catalogue(catalogue({message: translation}))) == expected


def test_the_encoding_is_the_catalogue_s_own() -> None:
    assert list(read_catalogue(catalogue({"Size": "Größe"}, encoding="iso-8859-1"))) == [
        ("Size", "Größe")
    ]
    with pytest.raises(ValueError, match="utf-8"):
        list(
            read_catalogue(catalogue({"Size": "Größe"}).replace("öß".encode(), b"\xf6\xdf\xf6\xdf"))
        )


def test_what_is_no_catalogue_is_refused() -> None:
    with pytest.raises(OSError, match="Invalid mo"):
        list(read_catalogue(b"hello, this is no catalogue"))

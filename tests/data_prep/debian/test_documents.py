"""Tests of which files are read, and which belong together."""

from __future__ import annotations

import pytest

from debian.documents import Document, kind_of, matched


@pytest.mark.parametrize(
    ("kind", "english", "german"),
    [
        ("man", "usr/share/man/man1/ls.1.gz", "usr/share/man/de/man1/ls.1.gz"),
        (
            "help",
            "usr/share/doc/HTML/en/kate/index.docbook",
            "usr/share/doc/HTML/de/kate/index.docbook",
        ),
        ("help", "usr/share/help/C/gedit/a.page", "usr/share/help/de/gedit/a.page"),
        ("help", "usr/share/gimp/2.0/help/en/a.html", "usr/share/gimp/2.0/help/de/a.html"),
        ("help", "usr/share/doc/debian/FAQ/a.en.html", "usr/share/doc/debian/FAQ/de/a.de.html"),
        (
            "help",
            "usr/share/doc/maint-guide/html/a.en.html",
            "usr/share/doc/maint-guide-de/html/a.de.html",
        ),
        (
            "help",
            "usr/share/developers-reference/a.html",
            "usr/share/developers-reference/de/a.html",
        ),
        (
            "help",
            "usr/share/doc/debian-handbook/html/en-US/a.html",
            "usr/share/doc/debian-handbook/html/de-DE/a.html",
        ),
        (
            "libreoffice",
            "usr/share/libreoffice/help/en-US/text/a.html",
            "usr/share/libreoffice/help/de/text/a.html",
        ),
        ("lyx", "usr/share/lyx/doc/Intro.lyx", "usr/share/lyx/doc/de/Intro.lyx"),
    ],
)
def test_documents_of_both_languages_belong_together(kind: str, english: str, german: str) -> None:
    assert kind_of(english) == kind_of(german) == kind
    pair = (Document(0, english), Document(1, german))
    assert matched(pair) == [pair]


def test_the_same_package_comes_first() -> None:
    path = "usr/share/man/man1/ls.1.gz"
    documents = [Document(0, path), Document(1, path), Document(1, "usr/share/man/de/man1/ls.1.gz")]
    assert matched(documents) == [(documents[1], documents[2])]


def test_other_files_are_not_read() -> None:
    assert kind_of("usr/share/locale/de/LC_MESSAGES/a.mo") == "gettext"
    for path in (
        "usr/share/locale/fr/LC_MESSAGES/a.mo",
        "usr/share/man/fr/man1/ls.1.gz",
        "usr/bin/ls",
        "usr/share/doc/a/b.html",
    ):
        assert kind_of(path) is None

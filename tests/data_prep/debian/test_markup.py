"""Tests of DocBook, Mallard and HTML: paragraphs, KDE's entities, and what is no text."""

from __future__ import annotations

import pytest

from debian.corpus import UNREADABLE
from debian.markup import blocks, read_entities, read_markup, resolved


def test_paragraphs_and_no_code() -> None:
    document = """<?xml version="1.0"?>
    <!DOCTYPE book [<!ENTITY app "<application>&kde; App</application>">]>
    <book><title>The &app;</title><!-- a comment --><para>Some <emphasis>text</emphasis>
    &amp; more&nbsp;&lt;here&gt;.</para><programlisting>int x;</programlisting>
    <itemizedlist><listitem><para>An item</para></listitem></itemizedlist></book>"""
    assert [text for _, text in blocks(document, {"kde": "<acronym>KDE</acronym>"})] == [
        "The KDE App",
        "Some text & more <here>.",
        "An item",
    ]


def test_entities_are_those_of_the_language() -> None:
    english, german = (
        read_entities(text)
        for text in ('<!ENTITY Ctrl "Ctrl">', "<!ENTITY Ctrl '<keycap>Strg</keycap>'>")
    )
    pairs = list(
        read_markup(b"<p>Press &Ctrl;</p>", "<p>Drücken Sie &Ctrl;</p>".encode(), (english, german))
    )
    assert pairs == [("Press Ctrl", "Drücken Sie Strg")]


def test_paths_through_menus_have_their_parts_apart() -> None:
    document = """<para>Use
    <menuchoice><shortcut><keycap>F2</keycap></shortcut><guimenu>File</guimenu>
    <guimenuitem>Save</guimenuitem></menuchoice>, <keycombo>&Ctrl;<keycap>S</keycap></keycombo>
    or <guimenu>Edit</guimenu><keycap>X</keycap>.</para>"""
    entities = {"Ctrl": "<keycap>Strg</keycap>"}
    assert blocks(document, entities) == [("para", "Use File → Save, Strg+S or EditX.")]
    document = "<p>Use <guiseq><gui>File</gui><gui>Save</gui></guiseq>, "
    document += "<keyseq><key>Ctrl</key><key>S</key></keyseq>.</p>"
    assert blocks(document, {}) == [("p", "Use File → Save, Ctrl+S.")]


def test_endless_entities_end() -> None:
    assert resolved({"a": "&a;" * 150, "b": "&b; &c;", "c": "x"})["a"] == "a"


def test_pages_of_html_that_is_not_well_formed() -> None:
    english = (
        b"<html><head><title>no</title></head><body><h1>Title here<p>First.<p>Second <br>line."
    )
    german = (
        b"<html><head><title>no</title></head><body><h1>Der Titel<p>Erster.<p>Zweite <br>Zeile."
    )
    assert list(read_markup(english, german)) == [
        ("Title here", "Der Titel"),
        ("First.", "Erster."),
        ("Second", "Zweite"),
        ("line.", "Zeile."),
    ]


@pytest.mark.parametrize("section", ["<![weird[x]]>", "<![%draft;[x]]>"])
def test_what_the_parser_gives_up_at_is_not_readable(section: str) -> None:
    with pytest.raises(UNREADABLE, match=r"in marked section|expected name"):
        read_markup(f"<p>Text</p>{section}".encode(), b"<p>Text</p>")

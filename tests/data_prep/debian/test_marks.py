"""Tests of what interface texts have besides text: accelerators, markup, places to be filled in."""

from __future__ import annotations

import pytest

from debian.marks import masked, without_accelerators, without_markup


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        ("&Open file", "Datei ö&ffnen", ("Open file", "Datei öffnen")),
        ("_Open file", "Datei _öffnen", ("Open file", "Datei öffnen")),
        ("~Open file", "Datei ö~ffnen", ("Open file", "Datei öffnen")),
        ("_Name of it", "_Name davon", ("Name of it", "Name davon")),
        ("Open (_O)", "Öffnen (_O)", ("Open", "Öffnen")),
        (
            "set foo_bar of AT&T",
            "setze foo_bar von AT&T",
            ("set foo_bar of AT&T", "setze foo_bar von AT&T"),
        ),
        ("Save && quit", "Sichern && beenden", ("Save & quit", "Sichern & beenden")),
        ("A &amp; b_c", "A &amp; b_d", ("A &amp; bc", "A &amp; bd")),
        ("call foo_bar: x", 'ruft "foo_bar" auf', ("call foo_bar: x", 'ruft "foo_bar" auf')),
        ("set a_b to c_d", "setze e_f auf g_h", ("set a_b to c_d", "setze e_f auf g_h")),
        ("see http://a/x_y", "siehe http://a/x_z", ("see http://a/x_y", "siehe http://a/x_z")),
    ],
)
def test_accelerators(english: str, german: str, expected: tuple[str, str]) -> None:
    assert without_accelerators(english, german) == expected


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<b>Bold</b>, <i>it</i>", "Bold, it"),
        ("One<br>two<p>three</p>", "One two three "),
        ("copy <source> to <target>", "copy source to target"),
        ("<foo>a</foo> &lt;x&gt; &amp;", "a <x> &"),
        ('<a href="http://x">here</a>', "here"),
    ],
)
def test_markup(text: str, plain: str) -> None:
    assert without_markup(text) == plain


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        ("%s of %d files", "%s von %d Dateien", ("X of Y files", "X von Y Dateien")),
        ("%1$s in %2$s", "In %2$s: %1$s", ("X in Y", "In Y: X")),
        ("%1 of %2", "von %2 %1", ("X of Y", "von Y X")),
        ("{name} is ${value}", "${value} ist {name}", ("X is Y", "Y ist X")),
        ("%(a)s and $b", "$b und %(a)s", ("X and Y", "Y und X")),
        ("100%% of 50% done", "100%% von 50% fertig", ("100% of 50% done", "100% von 50% fertig")),
        ("%s and %s", "nur %s", None),
        ("%<x%> is %qT, %#qD", "%<x%> ist %qT, %#qD", ("'x' is X, Y", "'x' ist X, Y")),
        ("%q is cmd", "%q ist der Befehl", ("X is cmd", "X ist der Befehl")),
        ("this is %Bbold%b", "das ist %Bfett%b", None),
        ("{a} {b} {c} {d}", "{a} {b} {c} {d}", None),
        ("no place", "kein Platz", ("no place", "kein Platz")),
    ],
)
def test_places(english: str, german: str, expected: tuple[str, str] | None) -> None:
    assert masked(english, german) == expected

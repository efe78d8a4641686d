"""Tests of man pages: what is text of troff's, and which pages are left alone."""

from __future__ import annotations

import gzip

import pytest

from debian.man import blocks, read_man, unescape
from tests.data_prep.debian.conftest import man


@pytest.mark.parametrize(
    ("troff", "text"),
    [
        (r"k\(:onnen, gr\[:o]\(sser, \[u00FC]ber", "können, größer, über"),
        (r"\fBbold\fP and \f(CWcode\fR and \f[I]i\f[]", "bold and code and i"),
        (r"\-\-all, a\ b, \(lqc\(rq, \*(Aqd\*(Aq, e\&. \" a comment", "--all, a b, “c”, 'd', e. "),
        (r"\s-1SMALL\s0 \h'2n'x \e \.y", r"SMALL x \ .y"),
    ],
)
def test_escapes(troff: str, text: str) -> None:
    assert unescape(troff) == text


def test_paragraphs_terms_and_no_code() -> None:
    page = r"""'\" t
.de Sp
.if t .sp .5v
..
.TH X 1
.SH DESCRIPTION
First
.B bold
text, see
.BR ls (1),
here.
.TP
.B \-a
The option.
.nf
not text
.fi
.IP "\-\-long" 4
The other.
.\" a comment
.PP
Last.
"""
    assert blocks(page) == [
        ("SH", "DESCRIPTION"),
        ("p", "First bold text, see ls(1), here."),
        ("term", "-a"),
        ("definition", "The option."),
        ("term", "--long"),
        ("definition", "The other."),
        ("p", "Last."),
    ]


def test_pages_are_aligned() -> None:
    pairs = read_man(man("One text here.", "Another."), man("Hier ein Text.", "Ein anderer."))
    assert pairs[-2:] == [("One text here.", "Hier ein Text."), ("Another.", "Ein anderer.")]


def test_old_pages_are_latin_1_and_others_refused() -> None:
    page = gzip.decompress(man("Ein Text über etwas."))
    assert (
        read_man(man("A text on something."), gzip.compress(page.decode().encode("latin-1")))[-1][1]
        == "Ein Text über etwas."
    )
    with pytest.raises(ValueError, match="neither UTF-8 nor Latin 1"):
        read_man(
            man("A text."), gzip.compress(page.decode().encode("utf-8").replace(b"\xc3", b"\x81"))
        )


def test_mdoc_and_redirections_are_left_alone() -> None:
    mdoc = gzip.compress(
        b".Dd March 1, 2020\n.Dt X 1\n.Sh NAME\n.Nm x\n.Nd a page\n"
        b".Sh DESCRIPTION\nSome text here.\n"
    )
    assert read_man(mdoc, mdoc) == []
    assert read_man(gzip.compress(b".so man1/y.1\n"), man("A text.")) == []

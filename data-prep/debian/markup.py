"""Help texts and books in DocBook, Mallard and HTML: paragraphs of both languages."""

import re
from collections.abc import Mapping
from html import entities as html_entities
from html.parser import HTMLParser

from debian.align import Block, align
from debian.text import OBJECT, Pair, decode, plain

_BLOCKS = """
    p para simpara title titleabbrev subtitle h1 h2 h3 h4 h5 h6 td th entry dt dd li term caption
    desc item listitem section sect1 sect2 sect3 sect4 sect5 chapter page note tip table row tr
    tbody thead div blockquote ul ol dl variablelist itemizedlist orderedlist steps terms list
    varlistentry glossterm glossentry glossdef question answer info prefaceinfo bookinfo articleinfo
    highlights procedure step figure screenshot br hr
"""
BLOCKS = set(_BLOCKS.split())
_NO_TEXT = """
    script style head nav pre programlisting screen literallayout synopsis cmdsynopsis funcsynopsis
    code_block indexterm remark comment footnote authorgroup author othercredit credit legalnotice
    license copyright revhistory keywordset toc shortcut
"""
NO_TEXT = set(_NO_TEXT.split())
REFERENCES = {
    "xref",
    "link",
    "img",
    "inlinegraphic",
    "graphic",
    "imagedata",
    "include",
    "xi:include",
}
# Paths through menus and combinations of keys, DocBook's and Mallard's, whose parts have nothing
# between them.
JOINTS = {"menuchoice", "keycombo", "guiseq", "keyseq"}
JOINT = {
    "guimenu": " → ",
    "guisubmenu": " → ",
    "guimenuitem": " → ",
    "gui": " → ",
    "keycap": "+",
    "key": "+",
}
DOCTYPE = re.compile(r"<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.S)
ENTITY = re.compile(r"""<!ENTITY\s+([\w.-]+)\s+(?:"([^"]*)"|'([^']*)')\s*>""")
REFERENCE = re.compile(r"&([A-Za-z][\w.-]*);")
DEPTH = 4  # of entities within entities; Debian's have two
LIMIT = 500  # characters; an entity stands for a few words

Entities = Mapping[str, str]  # name -> value


def read_entities(text: str) -> dict[str, str]:
    """The entities that a document type or a file of KDE's defines, as they stand there."""
    return {name: quoted or single for name, quoted, single in ENTITY.findall(text)}


def resolved(entities: Entities, known: Entities | None = None) -> dict[str, str]:
    """The entities with the values of those within them, and those that are ``known`` already.

    One that is too long for a few words is its own name.
    """
    values = {**(known or {}), **entities}
    for _ in range(DEPTH):
        filled = {name: put_in(values[name], values) for name in entities}
        values |= {name: value if len(value) <= LIMIT else name for name, value in filled.items()}
    return values


def put_in(text: str, values: Entities) -> str:
    """``text`` with its entities' values; an unknown one is its own name, XML's and HTML's stay."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return values.get(name) or (match[0] if name in html_entities.entitydefs else name)

    return REFERENCE.sub(value, text)


class Reader(HTMLParser):
    """Blocks of text between the tags that part them. Lenient: not all HTML is well formed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self._kind = ""
        self._text: list[str] = []
        self._hidden: list[str] = []  # open elements that have no text to be read
        self._joint: str | None = (
            None  # within a path through menus: what goes before its next part
        )

    def end_block(self, kind: str) -> None:
        """What came is a block, where it is any; the next one is of ``kind``."""
        if text := plain("".join(self._text)):
            self.blocks.append((self._kind, text))
        self._text, self._kind = [], kind

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A block begins."""
        if tag in NO_TEXT:
            self._hidden.append(tag)
        elif tag in BLOCKS and not self._hidden:
            self.end_block(tag)
        elif tag in JOINTS:
            self._joint = ""
        elif tag in JOINT and self._joint is not None and not self._hidden:
            self._text.append(self._joint)
            self._joint = JOINT[tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content; who shows the text puts another section's name there."""
        if tag in BLOCKS and not self._hidden:
            self.end_block(tag)
        elif tag in REFERENCES and not self._hidden:
            self._text.append(OBJECT)

    def handle_endtag(self, tag: str) -> None:
        """A block ends."""
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif tag in BLOCKS and not self._hidden:
            self.end_block(f"/{tag}")
        elif tag in JOINTS:
            self._joint = None

    def handle_data(self, data: str) -> None:
        """Text within a block."""
        if not self._hidden:
            self._text.append(data)


def blocks(document: str, entities: Entities) -> list[Block]:
    """The paragraphs, headings, terms and cells of a document."""
    doctype = DOCTYPE.search(document)
    if doctype:
        entities = resolved(read_entities(doctype[0]), entities)
        document = document[: doctype.start()] + document[doctype.end() :]
    reader = Reader()
    reader.feed(put_in(document, entities))
    reader.close()
    reader.end_block("")
    return reader.blocks


def read_markup(
    english: bytes, german: bytes, entities: tuple[Entities, Entities] = ({}, {})
) -> list[Pair]:
    """Paragraphs of two documents that belong together; ``entities``: each language's, `resolved`.

    Raises:
        ValueError: one is not text.
        AssertionError: one has a declaration that Python's parser gives up at.
    """
    sides = [
        blocks(decode(raw), names) for raw, names in zip((english, german), entities, strict=True)
    ]
    return align(*sides)

"""LyX's manuals: paragraphs of both languages, without formulas, notes and commands."""

import re

from debian.align import Block, align
from debian.text import OBJECT, Pair, decode, plain

SPECIAL = re.compile(r"\\SpecialChar (\S+)")
SPECIALS = {
    "ldots": "…",
    "endofsentence": ".",
    "softhyphen": "",
    "ligaturebreak": "",
    "menuseparator": "▷",
}
STYLED = ("\\begin_inset Flex", "\\begin_inset Text")
FOLDED = ("status open", "status collapsed")
# Without these the text around them is not whole. Notes, marks of an index and the like are not
# missed.
MISSED = (
    "\\begin_inset Formula",
    "\\begin_inset CommandInset ref",
    "\\begin_inset CommandInset citation",
    "\\begin_inset Graphics",
    "\\begin_inset Info",
    "\\begin_inset ERT",
    "\\begin_inset IPA",
    "\\begin_inset Box",
)


def blocks(document: str) -> list[Block]:
    """The paragraphs of a document. Of insets styled text is read; a formula leaves a mark."""
    found: list[Block] = []
    layout, lines = "", list[str]()
    insets: list[bool] = []  # of the open ones, whether their text is part of the paragraph
    for line in document.split("\n"):
        if line.startswith("\\begin_inset"):
            if all(insets):
                lines.append(_instead(line))
            insets.append(line.startswith(STYLED) and "note" not in line)
        elif line.startswith("\\end_inset"):
            del insets[-1:]
        elif not all(insets) or line in FOLDED:
            continue
        elif line.startswith("\\begin_layout") and not insets:
            layout, lines = line.split(" ", 1)[-1], []
        elif line.startswith("\\end_layout") and not insets:
            if text := plain("".join(lines)):
                found.append((layout, text))
            lines = []
        elif layout and (not line.startswith("\\") or line.startswith("\\SpecialChar")):
            lines.append(SPECIAL.sub(_special, line))
    return found


def _instead(line: str) -> str:
    """What the text around an inset has in its place."""
    if line.startswith("\\begin_inset Quotes"):
        return '"'
    if line.startswith(MISSED):
        return OBJECT
    return " " if line.startswith("\\begin_inset space") else ""


def _special(match: re.Match[str]) -> str:
    name = match[1]
    return SPECIALS.get(name.strip("\\{}").removesuffix("{}"), name if name[0].isupper() else "")


def read_lyx(english: bytes, german: bytes) -> list[Pair]:
    """Paragraphs of two documents that belong together.

    Raises:
        ValueError: one is not text.
    """
    return align(blocks(decode(english)), blocks(decode(german)))

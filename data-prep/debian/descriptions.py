"""Package descriptions: Debian's English ones and those of its Description Translation Project."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from debian.control import Stanza, read_stanzas
from debian.text import Pair, plain

ITEM = re.compile(r"\s*[-*o+•]\s+")


def paragraphs(description: str) -> list[str]:
    """The heading and paragraphs of a description; items of lists are paragraphs of their own."""
    heading, *lines = description.split("\n")
    found, current = [heading], list[str]()
    for line in lines:
        text = line[1:]
        item = ITEM.match(text)
        if text.strip() == "." or item:
            found.append(" ".join(current))
            current = [text[item.end() :]] if item else []
        else:
            current.append(text.strip())
    return [paragraph for paragraph in map(plain, (*found, " ".join(current))) if paragraph]


def descriptions(paths: Iterable[Path], lang: str) -> dict[str, Stanza]:
    """The stanzas of Translation files by the checksum of the English text, the first of each.

    Raises:
        UserError: a file is damaged or not UTF-8.
    """
    found: dict[str, Stanza] = {}
    for path in paths:
        for stanza in read_stanzas(path):
            if (
                f"Description-{lang}" in stanza
                and "Description-md5" in stanza
                and "Package" in stanza
            ):
                found.setdefault(stanza["Description-md5"], stanza)
    return found


def read_descriptions(
    english: Iterable[Path], german: Iterable[Path]
) -> Iterator[tuple[str, list[Pair]]]:
    """Package and paragraphs of each description that is translated.

    Where both languages have different numbers of paragraphs, only the heading is taken.
    """
    originals = descriptions(english, "en")
    for checksum, stanza in descriptions(german, "de").items():
        if checksum in originals:
            sides = [
                paragraphs(originals[checksum]["Description-en"]),
                paragraphs(stanza["Description-de"]),
            ]
            most = None if len(sides[0]) == len(sides[1]) else 1
            yield stanza["Package"], list(zip(sides[0][:most], sides[1][:most], strict=False))

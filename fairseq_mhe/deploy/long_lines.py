"""A line that is longer than a model's positions, in parts that fit; nothing is lost."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import regex

#: Latin marks end a sentence before a space only (3.5), those of other scripts always.
_ENDS_OF_SENTENCES = regex.compile(
    r"""[.!?…][\p{Pe}\p{Pi}\p{Pf}"']*\s+ | [\p{Sentence_Terminal}--[.!?]]+[\p{Pe}\p{Pf}"'\s]*""",
    regex.VERBOSE | regex.V1,
)


def cut(line: str, fits: Callable[[str], bool]) -> tuple[list[str], bool]:
    """Cut ``line`` into as few consecutive parts as possible that each ``fits``.

    Also returns whether a sentence did not fit by itself, so that it was cut at a space or, where
    there is none, between two characters.
    """
    parts = _packed(line, _ENDS_OF_SENTENCES, fits)
    inside = not all(map(fits, parts))
    for places in (r"\s+", r"\X"):  # spaces, characters with their accents
        parts = [piece for part in parts for piece in _packed(part, places, fits)]
    return [part.strip() for part in parts if part.strip()], inside


def _packed(text: str, places: Any, fits: Callable[[str], bool]) -> list[str]:
    """Cut ``text`` at as few of the ``places`` as possible; what fits nowhere is a part."""
    if fits(text):
        return [text]
    matches = regex.finditer(places, text)
    ends = sorted({match.end() for match in matches} | {len(text)})
    parts = []
    start = first = 0
    while first < len(ends):
        begin = start
        too_long = bisect_left(
            ends, True, first, key=lambda end: not fits(text[begin:end])
        )
        first = max(too_long, first + 1)
        parts.append(text[start : ends[first - 1]])
        start = ends[first - 1]
    return parts

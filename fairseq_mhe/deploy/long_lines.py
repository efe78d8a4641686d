"""Cut a line that is longer than a model's positions into parts that fit, without losing text."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import regex

#: Latin marks end a sentence only before a space (not in 3.5); those of other scripts always do.
_ENDS_OF_SENTENCES = regex.compile(
    r"""[.!?…][\p{Pe}\p{Pi}\p{Pf}"']*\s+ | [\p{Sentence_Terminal}--[.!?]]+[\p{Pe}\p{Pf}"'\s]*""",
    regex.VERBOSE | regex.V1,
)


def cut(line: str, fits: Callable[[str], bool]) -> tuple[list[str], bool]:
    """Cut ``line`` between sentences into as few consecutive parts as possible that each ``fits``.

    Also returns whether a sentence was cut, at spaces or within a word, since it does not fit.
    """
    parts = _split(line, _ENDS_OF_SENTENCES, fits)
    sentence_cut = not all(map(fits, parts))
    for boundary in (r"\s+", r"\X"):  # a space, a character with its accents
        parts = [piece for part in parts for piece in _split(part, boundary, fits)]
    return [part.strip() for part in parts if part.strip()], sentence_cut


def _split(text: str, boundary: Any, fits: Callable[[str], bool]) -> list[str]:
    """Cut ``text`` after as few matches of ``boundary`` as possible; pieces may still not fit."""
    if fits(text):
        return [text]
    ends = [match.end() for match in regex.finditer(boundary, text)] + [len(text)]
    parts = []
    start = first = 0  # ends[first] is the first end after start
    while first < len(ends):
        # The longest piece that fits, or the shortest piece if none fits.
        too_long = bisect_left(
            ends, True, first, key=lambda end: not fits(text[start:end])
        )
        first = max(too_long, first + 1)
        parts.append(text[start : ends[first - 1]])
        start = ends[first - 1]
    return parts

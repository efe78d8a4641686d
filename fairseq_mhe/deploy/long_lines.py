"""Find the sentences of a line, and cut a line that is longer than a model's positions."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import regex
from sacremoses.corpus import NonbreakingPrefixes

from fairseq_mhe.prepare.languages import base_code

#: Latin marks end a sentence only before a space (not in 3.5); those of other scripts always do.
_ENDS_OF_SENTENCES = regex.compile(
    r"""[.!?…][\p{Pe}\p{Pi}\p{Pf}"']*\s+ | [\p{Sentence_Terminal}--[.!?]]+[\p{Pe}\p{Pf}"'\s]*""",
    regex.VERBOSE | regex.V1,
)


_NUMERIC_ONLY = " #NUMERIC_ONLY#"  # after a prefix that ends no sentence before a number


@cache
def _abbreviations(language: str) -> frozenset[str]:
    """Return Moses' words whose full stop ends no sentence, such as Mr; English by default."""
    return frozenset(NonbreakingPrefixes().words(base_code(language)))


def sentences(line: str, language: str) -> list[str]:
    """Return the sentences of a line."""
    ends = [0, *_sentence_ends(line, language)]
    parts = [line[start:end].strip() for start, end in pairwise(ends)]
    return [part for part in parts if part]


def _sentence_ends(line: str, language: str) -> list[int]:
    """Return where sentences end, with the spaces after them; the last one is the line's end."""
    abbreviations = _abbreviations(language)
    ends = []
    for match in _ENDS_OF_SENTENCES.finditer(line):
        word = line[: match.start()].rsplit(maxsplit=1)[-1:] or [""]
        following = line[match.end() : match.end() + 1]
        if match[0].rstrip() == ".":
            prefix = word[0].lstrip("([{\"'")
            is_numeric = prefix + _NUMERIC_ONLY in abbreviations and following.isdecimal()
            if prefix in abbreviations or is_numeric or following.islower():
                continue
        ends.append(match.end())
    return [*ends, len(line)]


def cut(line: str, language: str, fits: Callable[[str], bool]) -> tuple[list[str], bool]:
    """Cut ``line`` between sentences into as few consecutive parts as possible that each ``fits``.

    Also returns whether a sentence was cut, at spaces or within a word, since it does not fit.
    """
    parts = _split(line, _sentence_ends(line, language), fits)
    sentence_cut = not all(map(fits, parts))
    for boundary in (r"\s+", r"\X"):  # a space, a character with its accents
        pieces = []
        for part in parts:
            ends = [match.end() for match in regex.finditer(boundary, part)]
            pieces += _split(part, [*ends, len(part)], fits)
        parts = pieces
    return [part.strip() for part in parts if part.strip()], sentence_cut


def _split(text: str, ends: Sequence[int], fits: Callable[[str], bool]) -> list[str]:
    """Cut ``text`` at as few of ``ends`` as possible; pieces may still not fit."""
    if fits(text):
        return [text]
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

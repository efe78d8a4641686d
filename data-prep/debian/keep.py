"""Which pairs are likely to be translations of each other, and worth learning from."""

import re

from debian.text import OBJECT, Pair

MIN_WORDS = 3  # with a letter, on each side
MAX_TOKENS = 80
MAX_RATIO = 2.0  # of characters
MIN_LETTERS = 0.7  # of all characters, spaces counted with letters
MAX_COPIED = 0.7  # of the words of a side that the other has too
COPY_WORDS = 4  # with fewer, the same words may well be names
LATIN = "\u024f"
LETTER = re.compile(r"[^\W\d_]")
WORD = re.compile(r"[^\W\d_]+")
_ENGLISH_WORDS = """
    the and of is to this that with for not are can be you your it from by which will has
"""
ENGLISH_WORDS = set(_ENGLISH_WORDS.split())
_GERMAN_WORDS = """
    der die das und ist nicht mit für von den dem ein eine einen zu wird werden sie auf im kann
"""
GERMAN_WORDS = set(_GERMAN_WORDS.split())


def reason_to_drop(pair: Pair) -> str | None:
    """Why a pair is dropped, or None where it is kept."""
    if any(OBJECT in text for text in pair):
        return "no_text_within"
    words = [[word for word in text.split() if LETTER.search(word)] for text in pair]
    if min(map(len, words)) < MIN_WORDS:
        return "few_words"
    if max(len(text.split()) for text in pair) > MAX_TOKENS:
        return "too_long"
    lengths = sorted(map(len, pair))
    if lengths[1] > MAX_RATIO * lengths[0]:
        return "ratio"
    if any(_is_mostly_signs(text) for text in pair):
        return "signs"
    if any(character > LATIN and character.isalpha() for text in pair for character in text):
        return "script"
    return "copied" if _is_copied(words) else _wrong_language(pair)


def _is_mostly_signs(text: str) -> bool:
    return sum(character.isalpha() or character == " " for character in text) < MIN_LETTERS * len(
        text
    )


def _is_copied(words: list[list[str]]) -> bool:
    sides = [{word.lower() for word in side} for side in words]
    fewer = min(map(len, sides))
    return sides[0] == sides[1] or (
        fewer >= COPY_WORDS and len(sides[0] & sides[1]) > MAX_COPIED * fewer
    )


def _wrong_language(pair: Pair) -> str | None:
    """Whether a side has words of the other's language only."""
    english, german = ({word.lower() for word in WORD.findall(text)} for text in pair)
    if len(german & ENGLISH_WORDS) > 1 and not german & GERMAN_WORDS:
        return "language"
    if len(english & GERMAN_WORDS) > 1 and not english & ENGLISH_WORDS:
        return "language"
    return None

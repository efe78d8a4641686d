"""Text as all readers return it: decoded, plain, on one line; and cut into sentences."""

import re
import unicodedata

Pair = tuple[str, str]  # English, German

OBJECT = "\ufffc"  # Unicode's own mark for what is no text: a formula, the name of another section
SPACE = re.compile(r"\s+")
INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff\0"))
INVISIBLE |= dict.fromkeys(range(0xD800, 0xE000))  # halves of characters
C1_CONTROL = re.compile("[\x80-\x9f]")
ENDS = re.compile(r"(?<=[.!?])([\"»”')\]]*)\s+(?=[\"„«»“(\[]*[A-ZÄÖÜ])")
# What ends in a point that does not end a sentence.
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.\s?g|i\.\s?e|etc|vs|resp|cf|Fig|approx|No|Dr|Mr|Mrs|St|a\.k\.a|Inc|z\.\s?B|d\.\s?h|u\.\s?a|bzw|usw|ca|Nr|Bd|"
    r"Abb|evtl|ggf|vgl|inkl|sog|s\.\s?[uo]|u\.\s?U|o\.\s?ä|[A-Za-zäöüÄÖÜ]|\d+))\.[\"»”')\]]*$"
)
MAX_SENTENCE_RATIO = 2.2
SHORT = 5  # characters that lengths may differ by without saying anything


def decode(raw: bytes) -> str:
    """UTF-8, or Latin 1, in which old man pages are written.

    Raises:
        ValueError: it is neither.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    if C1_CONTROL.search(text):
        raise ValueError("neither UTF-8 nor Latin 1")
    return text


def plain(text: str) -> str:
    """``text`` in Unicode's composed form, without invisible characters, with single spaces."""
    return SPACE.sub(" ", unicodedata.normalize("NFC", text).translate(INVISIBLE)).strip()


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph in English or German."""
    found: list[str] = []
    start = 0
    for end in ENDS.finditer(paragraph):
        sentence = paragraph[start : end.end(1)]
        if not ABBREVIATION.search(sentence):
            found.append(sentence.strip())
            start = end.end()
    return [sentence for sentence in (*found, paragraph[start:].strip()) if sentence]


def sentence_pairs(english: str, german: str) -> list[Pair]:
    """A paragraph's sentences where both sides have as many, of like lengths; else itself."""
    sides = sentences(english), sentences(german)
    if len(sides[0]) != len(sides[1]):
        return [(english, german)]
    pairs = list(zip(*sides, strict=True))
    alike = all(
        1 / MAX_SENTENCE_RATIO < (len(one) + SHORT) / (len(other) + SHORT) < MAX_SENTENCE_RATIO
        for one, other in pairs
    )
    return pairs if alike else [(english, german)]

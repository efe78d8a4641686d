"""Which sentence pairs are kept: white space in order, sides neither empty, too long, nor too unlike in length."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from fairseq_mhe.prepare.text import Block, pairs_of
from fairseq_mhe.prepare.tokenise import punctuation_normaliser, tokeniser

CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
# A token is rarely longer; a line that passes the limit of tokens only because it has no spaces is
# caught by this.
MAX_CHARACTERS_A_TOKEN = 8


@dataclass(frozen=True)
class CleanOptions:
    """What `clean_chunk` needs to know about a split.

    ``max_ratio`` None keeps every ratio; it is None for valid and test, which are never thinned for
    their style.
    ``punctuation``: quotes, dashes and the like are written in one way in what the subwords see;
    the plain text keeps them, since translations are scored against it. ``lowercase`` changes both.
    """

    source_lang: str
    target_lang: str
    tokenizer: str
    max_tokens: int
    max_ratio: float | None
    punctuation: bool = False
    lowercase: bool = False

    @property
    def keeps_text(self) -> bool:
        """Whether what the subwords see is the plain text itself."""
        return self.tokenizer == "none" and not self.punctuation


@dataclass
class CleanChunk:
    """The kept pairs, plain (``raw``) and tokenised, and how many were kept or dropped for which reason."""

    raw: list[tuple[str, str]] = field(default_factory=list)
    tokenised: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class CleanBlock:
    """What is left of a block: folder (raw, tokenised) -> the text of both sides; and the counts."""

    texts: dict[str, tuple[str, ...]]
    counts: Counter[str]


def normalise(line: str) -> str:
    """``line`` in Unicode's composed form, with single spaces for all white space and without control characters.

    Python and fairseq end lines at more characters than the line feed (a stray carriage return,
    U+2028): left in, they would shift one side against the other.
    """
    return " ".join(CONTROL.sub("", unicodedata.normalize("NFC", line)).split())


@cache
def model_text(
    lang: str, tokenizer: str, punctuation: bool = False, lowercase: bool = False
) -> Callable[[str], str]:
    """A function from a normalised line to what subwords are made of."""
    tokens = tokeniser(tokenizer, lang)
    if not punctuation and not lowercase:
        return tokens
    quotes = punctuation_normaliser(lang) if punctuation else str
    # Last, since abbreviations are told by their capitals.
    return lambda line: tokens(quotes(line)).lower() if lowercase else tokens(quotes(line))


def reason_to_drop(
    raw: tuple[str, str], tokenised: tuple[str, str], options: CleanOptions
) -> str | None:
    """Why a pair is dropped, or None where it is kept."""
    lengths = [side.count(" ") + 1 for side in tokenised]
    if not (raw[0] and raw[1] and tokenised[0] and tokenised[1]):
        return "empty"
    if max(lengths) > options.max_tokens or is_overlong(raw, options):
        return "too_long"
    if options.max_ratio is not None and max(lengths) > options.max_ratio * min(lengths):
        return "ratio"
    return None


def is_overlong(raw: tuple[str, str], options: CleanOptions) -> bool:
    """Whether a side has too many characters, whatever its tokens; such a line is not worth tokenising."""
    return max(map(len, raw)) > MAX_CHARACTERS_A_TOKEN * options.max_tokens


def clean_chunk(pairs: Iterable[tuple[str, str]], options: CleanOptions) -> CleanChunk:
    """Normalise, tokenise and filter some pairs of lines."""
    source_tokens, target_tokens = (
        model_text(lang, options.tokenizer, options.punctuation, options.lowercase)
        for lang in (options.source_lang, options.target_lang)
    )
    chunk = CleanChunk()
    for source, target in pairs:
        raw = normalise(source), normalise(target)
        tokenised = (
            raw if is_overlong(raw, options) else (source_tokens(raw[0]), target_tokens(raw[1]))
        )
        reason = reason_to_drop(raw, tokenised, options)
        chunk.counts[reason or "kept"] += 1
        if reason is None:
            chunk.raw.append((raw[0].lower(), raw[1].lower()) if options.lowercase else raw)
            chunk.tokenised.append(tokenised)
    return chunk


def clean_block(block: Block, options: CleanOptions) -> CleanBlock:
    """As `clean_chunk`, for lines as they are in a file."""
    chunk = clean_chunk(pairs_of(block), options)
    sides = (
        {"raw": chunk.raw}
        if options.keeps_text
        else {"raw": chunk.raw, "tokenised": chunk.tokenised}
    )
    texts = {
        folder: tuple(_lines(pair[side] for pair in pairs) for side in (0, 1))
        for folder, pairs in sides.items()
    }
    return CleanBlock(texts, chunk.counts)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)

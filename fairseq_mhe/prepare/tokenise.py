"""Words and punctuation apart, and together again: Moses' rules through sacremoses, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from sacremoses import MosesDetokenizer, MosesTokenizer

TOKENIZERS = ("moses", "none")


def _unchanged(line: str) -> str:
    return line


@cache
def tokeniser(name: str, lang: str) -> Callable[[str], str]:
    """A function from a line to its tokens with single spaces between them."""
    if name == "none":
        return _unchanged
    moses = MosesTokenizer(lang=lang)
    # Without XML escapes (&quot;): they would be one more thing for the subwords to learn and for a reader to undo.
    # Hyphens stay inside words; splitting them is the one Moses option whose marks (@-@) models can put wrongly.
    return lambda line: moses.tokenize(line, return_str=True, escape=False)


@cache
def detokeniser(name: str, lang: str) -> Callable[[str], str]:
    """A function from tokens to plain text as it is written in ``lang``."""
    if name == "none":
        return _unchanged
    moses = MosesDetokenizer(lang=lang)
    return lambda line: moses.detokenize(line.split(), unescape=False)

"""Words and punctuation apart, and together again: Moses' rules through sacremoses, or nothing."""

import re
from collections.abc import Callable
from functools import cache, partial

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from fairseq_mhe.prepare.languages import base_code

TOKENIZERS = ("moses", "none")
#: Moses' tokens as its scripts write them, with XML escapes (&apos;): of text that others made.
ESCAPED = "moses-escaped"
# Each of Moses' rules for punctuation needs one of these in the line.
_TO_NORMALISE = re.compile(
    r"""[()`\r\u00a0„“”«»…\u2013\u2014\u00b4\u2018\u2019\u201a]| [ %:;]|''|["][,.]|[,.]["]"""
)


def tokeniser(name: str, lang: str) -> Callable[[str], str]:
    """A function from a line to its tokens with single spaces between them."""
    if name == "none":
        return str
    # XML escapes (&quot;) would be one more thing for the subwords to learn and for a reader to
    # undo. Hyphens stay inside words; splitting them is the one Moses option whose marks (@-@)
    # models can put wrongly.
    tokenize = MosesTokenizer(lang=base_code(lang)).tokenize
    return partial(tokenize, return_str=True, escape=name == ESCAPED)


@cache
def punctuation_normaliser(lang: str) -> Callable[[str], str]:
    """As Moses' normalize-punctuation and remove-non-printing-char."""
    moses = MosesPunctNormalizer(lang=base_code(lang), post_remove_control_chars=True)

    def normalise(line: str) -> str:
        is_usual = line.isprintable() and not _TO_NORMALISE.search(line)
        return line.strip() if is_usual else moses.normalize(line)

    return normalise


@cache
def detokeniser(name: str, lang: str) -> Callable[[str], str]:
    """A function from tokens to plain text as it is written in ``lang``."""
    if name == "none":
        return str
    moses = MosesDetokenizer(lang=base_code(lang))
    return lambda line: moses.detokenize(line.split(), unescape=name == ESCAPED)

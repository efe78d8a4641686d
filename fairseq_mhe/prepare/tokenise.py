"""Tokenise and detokenise by Moses' rules (sacremoses), or leave text as it is."""

import re
from collections.abc import Callable
from functools import cache, partial

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from fairseq_mhe.prepare.languages import base_code

TOKENIZERS = ("moses", "none")
#: For corpora that others tokenised: Moses' tokens with the XML escapes of its scripts (&apos;).
ESCAPED = "moses-escaped"
_SEPARATOR = "<\0<"  # joins lines; none of Moses' punctuation rules looks past it
# Each of Moses' punctuation rules applies only to lines with one of these.
_PUNCTUATION = re.compile(
    r"""[()`\r\u00a0„“”«»…\u2013\u2014\u00b4\u2018\u2019\u201a]| [ %:;]|''|["][,.]|[,.]["]"""
)


def tokeniser(name: str, lang: str) -> Callable[[str], str]:
    """Return a function from a line to its tokens, with single spaces between them."""
    if name == "none":
        return str
    moses = MosesTokenizer(lang=base_code(lang))
    # Other text gets no XML escapes (&quot;): the subword model would have to learn them, and
    # readers to undo them. No splitting of hyphens: models can misplace its marks (@-@).
    return partial(moses.tokenize, return_str=True, escape=name == ESCAPED)


@cache
def punctuation_normaliser(lang: str) -> Callable[[list[str]], list[str]]:
    """Return a function like Moses' normalize-punctuation, then remove-non-printing-char.

    The lines hold no NUL. The rules run once over many lines, joined by `_SEPARATOR`.
    """
    moses = MosesPunctNormalizer(lang=base_code(lang))
    remove = moses.remove_control_chars
    # Most spaces are single: the rule " +" -> " " is faster if it matches only longer runs.
    rules = [
        partial(re.compile(rule.replace(" +", "  +")).sub, text)
        for rule, text in moses.substitutions
    ]

    def normalise(lines: list[str]) -> list[str]:
        chosen = [i for i, line in enumerate(lines) if _PUNCTUATION.search(line)]
        if chosen:
            text = _SEPARATOR.join([lines[i] for i in chosen])
            for rule in rules:
                text = rule(text)
            lines = [*lines]
            for i, line in zip(chosen, text.split(_SEPARATOR), strict=True):
                lines[i] = line
        return [(line if line.isprintable() else remove(line)).strip() for line in lines]

    return normalise


@cache
def detokeniser(name: str, lang: str) -> Callable[[str], str]:
    """Return a function from a line of tokens to plain text in ``lang``."""
    if name == "none":
        return str
    moses = MosesDetokenizer(lang=base_code(lang))
    return lambda line: moses.detokenize(line.split(), unescape=name == ESCAPED)

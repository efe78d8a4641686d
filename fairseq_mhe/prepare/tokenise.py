"""Tokenise and detokenise by Moses' rules (sacremoses), or leave text as it is."""

from collections.abc import Callable
from functools import cache, partial

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from fairseq_mhe.prepare.languages import base_code

TOKENIZERS = ("moses", "none")
#: For corpora that others tokenised: Moses' tokens with the XML escapes of its scripts (&apos;).
ESCAPED = "moses-escaped"


@cache
def tokeniser(name: str, lang: str) -> Callable[[str], str]:
    """Return a function from a line to its tokens, with single spaces between them."""
    if name == "none":
        return str
    moses = MosesTokenizer(lang=base_code(lang))
    # No XML escapes (&quot;) in new text: the subword model would have to learn them, and readers
    # of the output to undo them. No splitting of hyphens: models can misplace its marks (@-@).
    return partial(moses.tokenize, return_str=True, escape=name == ESCAPED)


@cache
def punctuation_normaliser(lang: str) -> Callable[[str], str]:
    """Return a function like Moses' normalize-punctuation, then remove-non-printing-char."""
    moses = MosesPunctNormalizer(lang=base_code(lang), post_remove_control_chars=True)
    normalise: Callable[[str], str] = moses.normalize
    return normalise


@cache
def detokeniser(name: str, lang: str) -> Callable[[str], str]:
    """Return a function from a line of tokens to plain text in ``lang``."""
    if name == "none":
        return str
    moses = MosesDetokenizer(lang=base_code(lang))
    return lambda line: moses.detokenize(line.split(), unescape=name == ESCAPED)

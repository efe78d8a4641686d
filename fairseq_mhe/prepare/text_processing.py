"""What becomes of a line of text: normalised, tokenised, in subwords; and plain text again."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fairseq_mhe.prepare.subword import (
    MODEL_NAMES,
    WORD_START,
    SubwordModel,
    join,
    segment,
)
from fairseq_mhe.prepare.tokenise import detokeniser, punctuation_normaliser, tokeniser

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]")
_OPTIONAL = ("punctuation", "lowercase")
#: What a bundle keeps of a manifest.
_SETTINGS = ("source_lang", "target_lang", "tokenizer", "subword", *_OPTIONAL)


def normalise(line: str) -> str:
    """``line`` in Unicode's composed form, single spaces, no control characters or surrogates.

    Python and fairseq end lines at more characters than the line feed (U+2028): left in, they would
    shift one side against the other.
    """
    if WORD_START in line:  # SentencePiece would read it as a space
        line = line.replace(WORD_START, " ")
    # Of white space and control characters, a space alone is printable.
    if line.isprintable() and "  " not in line and unicodedata.is_normalized("NFC", line):
        return line.strip(" ")
    return " ".join(unicodedata.normalize("NFC", _CONTROL.sub("", line)).split())


@cache
def model_text(
    lang: str, tokenizer: str, punctuation: bool, lowercase: bool
) -> Callable[[list[str]], list[str]]:
    """A function from normalised lines to the text that subwords are made of."""
    tokens = tokeniser(tokenizer, lang)
    unify = punctuation_normaliser(lang) if punctuation else list

    def process(lines: list[str]) -> list[str]:
        lines = list(map(tokens, unify(lines)))
        # Last, since capitals tell abbreviations from words.
        return [line.lower() for line in lines] if lowercase else lines

    return process


class TextProcessing:
    """How plain text becomes subwords, and plain again."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        """``settings``: `_SETTINGS`, two of them `_OPTIONAL`; ``folder`` has the subword model."""
        self.languages = settings["source_lang"], settings["target_lang"]
        self.tokenizer, kind = settings["tokenizer"], settings["subword"]
        self.model = SubwordModel(kind, folder / MODEL_NAMES[kind])
        self.settings = {name: settings.get(name, False) for name in _SETTINGS}
        self.punctuation, self.lowercase = (self.settings[name] for name in _OPTIONAL)

    def segment(self, lines: Sequence[str], side: int = 0) -> list[str]:
        """Plain lines of the source (``side`` 0) or target (1) as subwords with spaces between."""
        language = self.languages[side]
        text = model_text(language, self.tokenizer, self.punctuation, self.lowercase)
        return segment(text([normalise(line) for line in lines]), self.model)

    def plain(self, lines: Iterable[str], side: int = 1) -> list[str]:
        """Subwords as text that a person writes."""
        finish = detokeniser(self.tokenizer, self.languages[side])
        return [finish(join(line, self.model.kind)) for line in lines]

"""Turn plain lines into subwords (normalise, tokenise, segment), and subwords into plain lines."""

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
_OPTIONAL = ("punctuation", "lowercase")  # False for a manifest without them
#: The keys of a manifest that an exported bundle keeps.
_SETTINGS = ("source_lang", "target_lang", "tokenizer", "subword", *_OPTIONAL)


def normalise(line: str) -> str:
    """Compose ``line`` (Unicode NFC); use single spaces; remove control characters and surrogates.

    Python and fairseq also end lines at other characters than the line feed, such as U+2028. These
    would shift one side of a parallel text against the other.
    """
    if WORD_START in line:  # SentencePiece would read it as a space
        line = line.replace(WORD_START, " ")
    # A space is the only printable one among white space and control characters.
    if line.isprintable() and "  " not in line and unicodedata.is_normalized("NFC", line):
        return line.strip(" ")
    text = unicodedata.normalize("NFC", _CONTROL.sub("", line))
    return " ".join(text.split())


@cache
def model_text(
    lang: str, tokenizer: str, punctuation: bool, lowercase: bool
) -> Callable[[list[str]], list[str]]:
    """Return a function from normalised lines to the lines that are then split into subwords."""
    tokenise = tokeniser(tokenizer, lang)
    normalise_punctuation = punctuation_normaliser(lang) if punctuation else list

    def process(lines: list[str]) -> list[str]:
        lines = list(map(tokenise, normalise_punctuation(lines)))
        # The tokeniser needs capitals to tell abbreviations from words.
        return [line.lower() for line in lines] if lowercase else lines

    return process


class TextProcessing:
    """Segments plain text of a language pair, and turns subwords back into plain text."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        """``settings``: a manifest's keys (`_SETTINGS`); ``folder`` holds the subword model."""
        self.settings = {name: settings.get(name, False) for name in _SETTINGS}
        self.languages = settings["source_lang"], settings["target_lang"]
        self.tokenizer = settings["tokenizer"]
        self.punctuation = self.settings["punctuation"]
        self.lowercase = self.settings["lowercase"]
        kind = settings["subword"]
        self.model = SubwordModel(kind, folder / MODEL_NAMES[kind])

    def segment(self, lines: Sequence[str], side: int = 0) -> list[str]:
        """Return plain lines of the source (``side`` 0) or the target (1) in subwords."""
        language = self.languages[side]
        process = model_text(language, self.tokenizer, self.punctuation, self.lowercase)
        return segment(process([normalise(line) for line in lines]), self.model)

    def plain(self, lines: Iterable[str], side: int = 1) -> list[str]:
        """Join the subwords of lines and detokenise them."""
        detokenise = detokeniser(self.tokenizer, self.languages[side])
        return [detokenise(join(line, self.model.kind)) for line in lines]

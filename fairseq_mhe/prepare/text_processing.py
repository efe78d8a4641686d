"""Turn plain lines into subwords (normalise, tokenise, segment), and subwords into plain lines."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.subword import MODEL_NAMES, WORD_START, SubwordModel, segment
from fairseq_mhe.prepare.text_spec import TextSpec

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]")


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


@dataclass(frozen=True)
class TextProcessing:
    """Segments plain text of a language pair, and turns subwords back into plain text."""

    spec: TextSpec
    folder: Path  # holds the subword model

    @property
    def languages(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.spec.languages

    @property
    def model(self) -> SubwordModel:
        """The subword model of both languages."""
        kind = self.spec.subword
        return SubwordModel(kind, self.folder / MODEL_NAMES[kind])

    def segment(self, lines: Sequence[str], side: int = 0) -> list[str]:
        """Return plain lines of the source (``side`` 0) or the target (1) in subwords."""
        normalised = [normalise(line) for line in lines]
        return segment(self.spec.tokens(normalised, side), self.model)

    def plain(self, lines: Iterable[str], side: int = 1) -> list[str]:
        """Join the subwords of lines and detokenise them."""
        return self.spec.plain(lines, side)

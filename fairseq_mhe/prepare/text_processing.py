"""Turn plain lines into subwords (normalise, tokenise, segment), and subwords into plain lines."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from fairseq_mhe.prepare.subword import (
    MODEL_NAMES,
    WORD_START,
    SubwordModel,
    join,
    segment,
)
from fairseq_mhe.prepare.tokenise import (
    ESCAPED,
    detokeniser,
    punctuation_normaliser,
    tokeniser,
)

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
    """How text is processed: languages, tokeniser, case and subwords; data folders store it.

    A line is plain, then normalised, then in tokens, then in subwords; `plain` leads back. Side 0
    is the source, side 1 the target. A text in one language has the language twice.
    """

    source_lang: str
    target_lang: str
    tokenizer: str  # moses, moses-escaped or none
    subword: str  # bpe or sentencepiece
    punctuation: bool = False  # unify quotes, dashes and spaces
    lowercase: bool = False
    folder: Path = field(default=Path(), kw_only=True)  # holds the subword model

    @classmethod
    def read(cls, stored: Mapping[str, Any], folder: Path) -> Self:
        """Return what `stored` gave, with the subword model in ``folder``; ignore other keys."""
        names = [item.name for item in fields(cls) if item.name != "folder"]
        return cls(**{name: stored[name] for name in names}, folder=folder)

    @property
    def stored(self) -> dict[str, Any]:
        """What manifests and bundles store, which `read` takes."""
        values = asdict(self)
        del values["folder"]
        return values

    @property
    def languages(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.source_lang, self.target_lang

    @property
    def model(self) -> SubwordModel:
        """The subword model of both languages."""
        return SubwordModel(self.subword, self.folder / MODEL_NAMES[self.subword])

    def tokens(self, normalised: list[str], side: int) -> list[str]:
        """Return normalised lines of a side as they are split into subwords."""
        language = self.languages[side]
        if self.punctuation:
            normalised = list(map(punctuation_normaliser(language), normalised))
        tokens = list(map(tokeniser(self.tokenizer, language), normalised))
        # The tokeniser needs capitals to tell abbreviations from words.
        return list(map(str.lower, tokens)) if self.lowercase else tokens

    def segment(self, lines: Sequence[str], side: int = 0) -> list[str]:
        """Return plain lines of a side in subwords."""
        normalised = [normalise(line) for line in lines]
        return segment(self.tokens(normalised, side), self.model)

    def plain(self, lines: Iterable[str], side: int = 1) -> list[str]:
        """Join the subwords of lines of a side, and detokenise them."""
        detokenise = detokeniser(self.tokenizer, self.languages[side])
        return [detokenise(join(line, self.subword)) for line in lines]

    def given_tokens(self, lines: Iterable[str]) -> list[str]:
        """Join subwords to Moses' tokens, which BLEU4 scores; [] if the corpus was plain text."""
        if self.tokenizer != ESCAPED:
            return []
        return [join(line, self.subword) for line in lines]

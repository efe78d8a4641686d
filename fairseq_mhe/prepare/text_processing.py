"""What was done to a model's text, for new text: plain to subwords, and subwords back to plain."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.clean import model_text, normalise
from fairseq_mhe.prepare.subword import MODEL_NAMES, NOT_LAST, WORD_START, SubwordModel, segment
from fairseq_mhe.prepare.tokenise import ESCAPED, detokeniser


@dataclass(frozen=True)
class TextProcessing:
    """How plain text of both ``languages`` (source, target) becomes subwords.

    ``tokenizer``, ``punctuation`` and ``lowercase`` as `PrepareConfig` has them.
    """

    languages: tuple[str, str]
    tokenizer: str
    model: SubwordModel
    punctuation: bool = False
    lowercase: bool = False

    @property
    def tokenised(self) -> bool:
        """Whether words and punctuation are taken apart before the subwords, by Moses' rules."""
        return self.tokenizer != "none"

    @property
    def escaped(self) -> bool:
        """Whether the tokeniser writes some characters as XML does (``&apos;``)."""
        return self.tokenizer == ESCAPED

    @property
    def settings(self) -> dict[str, Any]:
        """All of it but the subword model's place, as JSON has it."""
        return {
            "source_lang": self.languages[0],
            "target_lang": self.languages[1],
            "tokenizer": self.tokenizer,
            "subword": self.model.kind,
            "punctuation": self.punctuation,
            "lowercase": self.lowercase,
        }

    def segment(self, lines: Sequence[str], side: int = 0) -> list[str]:
        """Plain lines of the source (``side`` 0) or target (1) as subwords with spaces between."""
        text = model_text(
            self.languages[side], self.tokenizer, self.punctuation, self.lowercase
        )
        return segment(text([normalise(line) for line in lines]), self.model)

    def plain(self, lines: Iterable[str], side: int = 1) -> list[str]:
        """Subwords as text that a person writes."""
        return plain_text(lines, self.model.kind, self.tokenizer, self.languages[side])


def processing_of(settings: Mapping[str, Any], folder: Path) -> TextProcessing:
    """The processing that ``TextProcessing.settings`` describe, its subword model in ``folder``."""
    path = folder / MODEL_NAMES[settings["subword"]]
    return TextProcessing(
        (settings["source_lang"], settings["target_lang"]),
        settings["tokenizer"],
        SubwordModel(settings["subword"], path, sha256(path)),
        settings.get("punctuation", False),
        settings.get("lowercase", False),
    )


def plain_text(lines: Iterable[str], subword: str, tokenizer: str, lang: str) -> list[str]:
    """Subwords of a kind as text that a person writes in ``lang``."""
    join = join_bpe if subword == "bpe" else join_sentencepiece
    finish = detokeniser(tokenizer, lang)
    return [finish(join(line)) for line in lines]


def join_bpe(line: str) -> str:
    """Undo subword-nmt's segmentation: a piece that ends in ``@@`` is joined to the next."""
    return f"{line} ".replace(f"{NOT_LAST} ", "").strip()


def join_sentencepiece(line: str) -> str:
    """Undo SentencePiece's: a space stands only where a piece begins with U+2581."""
    return line.replace(" ", "").replace(WORD_START, " ").strip()

"""How text is processed: the one description that data folders and bundles store."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from fairseq_mhe.prepare.subword import join
from fairseq_mhe.prepare.tokenise import (
    ESCAPED,
    detokeniser,
    punctuation_normaliser,
    tokeniser,
)


@dataclass(frozen=True)
class TextSpec:
    """Languages, tokeniser, case and subwords of a text, and what they do with its lines.

    A line is plain, then normalised (`text_processing.normalise`), then in tokens (`tokens`), then
    in subwords (`TextProcessing.segment`); `plain` leads back. A text in one language has it twice.
    """

    source_lang: str
    target_lang: str
    tokenizer: str  # moses, moses-escaped or none
    subword: str  # bpe or sentencepiece
    punctuation: bool = False  # unify quotes, dashes and spaces
    lowercase: bool = False

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Return the spec that `stored` gave; other keys may stand beside its own."""
        return cls(**{item.name: stored[item.name] for item in fields(cls)})

    @property
    def stored(self) -> dict[str, Any]:
        """What manifests and bundles store, which `read` takes."""
        return asdict(self)

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of side 0, the source, and of side 1, the target."""
        return self.source_lang, self.target_lang

    def tokens(self, lines: list[str], side: int) -> list[str]:
        """Return normalised lines of a side as they are split into subwords."""
        language = self.languages[side]
        if self.punctuation:
            lines = list(map(punctuation_normaliser(language), lines))
        tokens = list(map(tokeniser(self.tokenizer, language), lines))
        # The tokeniser needs capitals to tell abbreviations from words.
        return list(map(str.lower, tokens)) if self.lowercase else tokens

    def plain(self, lines: Iterable[str], side: int) -> list[str]:
        """Join the subwords of lines of a side, and detokenise them."""
        detokenise = detokeniser(self.tokenizer, self.languages[side])
        return [detokenise(join(line, self.subword)) for line in lines]

    def given_tokens(self, lines: Iterable[str]) -> list[str]:
        """Join subwords to Moses' tokens, which BLEU4 scores; [] if the corpus was plain text."""
        if self.tokenizer != ESCAPED:
            return []
        return [join(line, self.subword) for line in lines]

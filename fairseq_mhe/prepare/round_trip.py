"""Whether Moses' tokeniser can be undone, by the references; which tokeniser and subwords serve."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from sacrebleu.metrics import BLEU

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.clean import normalise
from fairseq_mhe.prepare.config import Inputs, PrepareConfig
from fairseq_mhe.prepare.text import pairs_of, read_blocks
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser

LEAST_BLEU = 98.0
_LINES = 1000


@dataclass(frozen=True)
class RoundTrip:
    """What is left of ``lines`` references, tokenised and detokenised by Moses' rules."""

    language: str
    lines: int
    bleu: float
    signature: str

    def __str__(self) -> str:
        return (
            f"Moses' tokens of {self.lines:,} references ({self.language}), put together again: "
            f"BLEU {self.bleu:.2f} ({self.signature})"
        )


def round_trip(lines: Sequence[str], language: str) -> RoundTrip:
    """How much of some lines Moses' tokeniser and detokeniser give back."""
    # 13a, whatever the language: it sees the spaces, which is what may be lost. By the orders that
    # there are, since BLEU would be 0 where no line has four tokens.
    bleu = BLEU(effective_order=True)
    split, join = tokeniser("moses", language), detokeniser("moses", language)
    score = bleu.corpus_score([join(split(line)) for line in lines], [lines]).score
    return RoundTrip(language, len(lines), round(score, 2), str(bleu.get_signature()))


def _references(files: Inputs) -> Iterator[str]:
    """The target's lines that are not empty: the test text's, then the others'."""
    for paths in chain(files.get("test", []), files.get("valid", []), files["train"]):
        for block in read_blocks(paths, _LINES):
            yield from filter(None, (normalise(target) for _, target in pairs_of(block)))


def settled(config: PrepareConfig, files: Inputs) -> tuple[PrepareConfig, RoundTrip | None]:
    """The options with what they leave open: tokeniser and subwords; and why.

    Moses' tokeniser serves where its detokeniser gives the references back; the second value is the
    measurement, None where Moses is not asked for.

    Raises:
        UserError: Moses is asked for by name and does not serve; or the text cannot be read.
    """
    tokenizer, subword, found = config.tokenizer, config.subword, None
    if not tokenizer:
        tokenizer = "none" if config.unspaced or subword == "sentencepiece" else "moses"
    # Cleaning tells of text without a reference.
    if tokenizer == "moses" and (lines := list(islice(_references(files), _LINES))):
        found = round_trip(lines, config.target_lang)
        if found.bleu < LEAST_BLEU:
            if config.tokenizer:
                raise UserError(
                    f"{found}, less than {LEAST_BLEU:g}: Moses' rules do not serve this language; "
                    "leave --tokenizer away, or name none"
                )
            tokenizer = "none"
    if not subword:
        subword = "sentencepiece" if config.unspaced or tokenizer == "none" else "bpe"
    return replace(config, tokenizer=tokenizer, subword=subword), found

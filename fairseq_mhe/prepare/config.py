"""What to prepare and how, checked before anything is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.parallel import available_cores
from fairseq_mhe.prepare.subword import MODEL_TYPES, SUBWORDS
from fairseq_mhe.prepare.text import SUFFIXES, existing_text, side_path
from fairseq_mhe.prepare.tokenise import TOKENIZERS

SPLITS = ("train", "valid", "test")
LANGUAGE = re.compile(r"[A-Za-z_]+")
ORIGINAL = "original"  # folder of the output where the scripts of known corpora put what they fetch
MIN_HOLD_OUT = 3  # valid, test and at least one pair for train
# split -> of each of its corpora both sides, or the one file that has both
Inputs = dict[str, list[tuple[Path, ...]]]


@dataclass(frozen=True)
class PrepareConfig:
    """What to prepare, and how.

    ``train`` (one or more corpora, joined), ``valid`` and ``test`` are prefixes: PREFIX.LANG is a
    side's file, plain or with .gz or .xz; or they are files with both sides, NAME.tsv, plain or
    compressed. With ``hold_out`` N, every Nth clean train pair becomes valid where ``valid`` is
    None, and the pair after it test where ``test`` is None.
    ``vocab_size`` is the number of merges for BPE (as "32K BPE" means) and of pieces for
    SentencePiece. Train pairs are kept with 1 to ``max_tokens`` tokens on each side and up to
    ``max_ratio`` times as many on the one as on the other (None: any); valid and test pairs are
    dropped only where a side is empty or too long. ``punctuation`` and ``lowercase`` as in
    `CleanOptions`. ``workers`` has no influence on what is written.
    """

    train: tuple[Path, ...]
    valid: Path | None
    test: Path | None
    source_lang: str
    target_lang: str
    out: Path
    subword: str = "bpe"
    vocab_size: int = 32000
    tokenizer: str = "moses"
    model_type: str = "unigram"
    max_tokens: int = 250
    max_ratio: float | None = 1.5
    punctuation: bool = False
    lowercase: bool = False
    hold_out: int | None = None
    workers: int | None = None

    @property
    def langs(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_lang, self.target_lang

    @property
    def cores(self) -> int:
        """How many processes work."""
        return self.workers or available_cores()

    def prefixes(self, split: str) -> tuple[Path, ...]:
        """Where the pairs of a split come from."""
        one = {"valid": self.valid, "test": self.test}
        return (
            self.train
            if split == "train"
            else tuple(path for path in [one[split]] if path is not None)
        )

    @property
    def held_out(self) -> dict[str, int]:
        """Split without a text of its own -> which of every ``hold_out`` clean train pairs it gets."""
        return {
            split: place for split, place in (("valid", 0), ("test", 1)) if not self.prefixes(split)
        }


def check(config: PrepareConfig) -> None:
    """Refuse what cannot work, before anything is written.

    Raises:
        UserError: an option is wrong.
    """
    for name, value, choices in (
        ("subword", config.subword, SUBWORDS),
        ("tokenizer", config.tokenizer, TOKENIZERS),
        ("model type", config.model_type, MODEL_TYPES),
    ):
        if value not in choices:
            raise UserError(f"unknown {name} {value!r}; choose from {', '.join(choices)}")
    if not config.train:
        raise UserError("no training text is named; give at least one prefix")
    check_hold_out(config)
    if config.source_lang == config.target_lang:
        raise UserError(
            f"source and target language are both {config.source_lang!r}; they must differ"
        )
    for lang in config.langs:
        if not LANGUAGE.fullmatch(lang):
            raise UserError(
                f"{lang!r} cannot be a language's name here; use letters and _ only, as in en or pt_BR"
            )
    limits: tuple[tuple[str, float | None], ...] = (
        ("vocabulary size", config.vocab_size),
        ("maximum of tokens", config.max_tokens),
        ("maximal ratio", config.max_ratio),
        ("number of workers", config.workers),
    )
    for name, limit in limits:
        if limit is not None and limit < 1:
            raise UserError(f"the {name} is {limit}; it must be at least 1")


def check_hold_out(config: PrepareConfig) -> None:
    """See that each split has a text, of its own or held out of train, and not both.

    Raises:
        UserError: it has not.
    """
    if config.held_out and (config.hold_out is None or config.hold_out < MIN_HOLD_OUT):
        raise UserError(
            f"no text for {' and '.join(config.held_out)} is named; name one, or hold out every Nth train pair, "
            f"N at least {MIN_HOLD_OUT}"
        )
    if config.hold_out is not None and not config.held_out:
        raise UserError(
            "valid and test text are both named, so that nothing is to be held out of train"
        )


def input_files(config: PrepareConfig) -> Inputs:
    """The files that ``config`` names.

    Raises:
        UserError: one is missing, empty, or would be overwritten.
    """
    files = {
        split: [corpus_files(prefix, config.langs) for prefix in config.prefixes(split)]
        for split in SPLITS
        if config.prefixes(split)
    }
    out = config.out.resolve()
    for path in map(Path.resolve, chain.from_iterable(chain.from_iterable(files.values()))):
        if path.is_relative_to(out) and not path.is_relative_to(out / ORIGINAL):
            raise UserError(
                f"{path} lies inside the output folder {config.out}; choose another --out"
            )
    return files


def corpus_files(prefix: Path, langs: tuple[str, str]) -> tuple[Path, ...]:
    """Both sides of a corpus, or the one file with tabs that has both.

    Raises:
        UserError: as `side_path`.
    """
    if any(prefix.name.endswith(f".tsv{suffix}") for suffix in SUFFIXES):
        return (existing_text(prefix),)
    return tuple(side_path(prefix, lang) for lang in langs)

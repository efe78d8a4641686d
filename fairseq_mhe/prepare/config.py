"""What to prepare and how, checked before anything is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fairseq_mhe.errors import UserError
from fairseq_mhe.prepare.parallel import available_cores
from fairseq_mhe.prepare.subword import MODEL_TYPES, SUBWORDS
from fairseq_mhe.prepare.text import side_path
from fairseq_mhe.prepare.tokenise import TOKENIZERS

SPLITS = ("train", "valid", "test")
LANGUAGE = re.compile(r"[A-Za-z_]+")
# split -> both sides of each of its corpora
Inputs = dict[str, list[tuple[Path, Path]]]


@dataclass(frozen=True)
class PrepareConfig:
    """What to prepare, and how.

    ``train`` (one or more corpora, joined), ``valid`` and ``test`` are prefixes: PREFIX.LANG is a side's file, plain or
    with .gz or .xz. ``vocab_size`` is the number of merges for BPE (as "32K BPE" means) and of pieces for
    SentencePiece. Train pairs are kept with 1 to ``max_tokens`` tokens on each side and up to ``max_ratio`` times as
    many on the one as on the other (None: any); valid and test pairs are dropped only where a side is empty or
    too long. ``workers`` has no influence on what is written.
    """

    train: tuple[Path, ...]
    valid: Path
    test: Path
    source_lang: str
    target_lang: str
    out: Path
    subword: str = "bpe"
    vocab_size: int = 32000
    tokenizer: str = "moses"
    model_type: str = "unigram"
    max_tokens: int = 250
    max_ratio: float | None = 1.5
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
        return {"train": self.train, "valid": (self.valid,), "test": (self.test,)}[split]


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
    if config.source_lang == config.target_lang:
        raise UserError(f"source and target language are both {config.source_lang!r}; they must differ")
    for lang in config.langs:
        if not LANGUAGE.fullmatch(lang):
            raise UserError(f"{lang!r} cannot be a language's name here; use letters and _ only, as in en or pt_BR")
    limits: tuple[tuple[str, float | None], ...] = (
        ("vocabulary size", config.vocab_size),
        ("maximum of tokens", config.max_tokens),
        ("maximal ratio", config.max_ratio),
        ("number of workers", config.workers),
    )
    for name, limit in limits:
        if limit is not None and limit < 1:
            raise UserError(f"the {name} is {limit}; it must be at least 1")


def input_files(config: PrepareConfig) -> Inputs:
    """The files that ``config`` names.

    Raises:
        UserError: one is missing, empty, or would be overwritten.
    """
    files = {
        split: [(side_path(prefix, config.source_lang), side_path(prefix, config.target_lang)) for prefix in prefixes]
        for split in SPLITS
        for prefixes in [config.prefixes(split)]
    }
    for path in chain.from_iterable(chain.from_iterable(files.values())):
        if path.resolve().is_relative_to(config.out.resolve()):
            raise UserError(f"{path} lies inside the output folder {config.out}; choose another --out")
    return files

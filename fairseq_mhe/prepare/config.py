"""What to prepare and how, checked before anything is written."""

import re
from argparse import ArgumentTypeError
from collections.abc import Collection
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import number, option, positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import no_colon
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.languages import has_spaces, restored_by_moses
from fairseq_mhe.prepare.subword import MODEL_TYPES, SUBWORDS
from fairseq_mhe.prepare.text import SUFFIXES, ZSTD, existing_text, side_path
from fairseq_mhe.prepare.tokenise import TOKENIZERS

SPLITS = ("train", "valid", "test")
ORIGINAL = "original"  # folder of the output for what the scripts of known corpora fetch
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MIN_HOLD_OUT = 3  # valid, test and at least one pair for train
_TEXT = "PREFIX.LANG for each language, or NAME.tsv (source TAB target), plain, .gz, .xz or .bz2"
#: Split -> its corpora, each the files of both sides, or the one file that has both.
Inputs = dict[str, list[tuple[Path, ...]]]


def vocabulary(default: int) -> Any:
    """The field of the vocabulary's size, with a default that suits a corpus."""
    help = "merges (bpe) or pieces (sentencepiece), of all languages together"
    return option(default, help, type=positive, metavar="N")


def percent(text: str) -> float:
    """A number from 0 to 100."""
    value = number(text)
    if not 0 <= value <= 100:
        raise ArgumentTypeError(f"{text!r} is no percentage from 0 to 100")
    return value


def ratio(text: str) -> float:
    """A number of 1 or more."""
    value = number(text)
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is no ratio of 1 or more")
    return value


@dataclass(frozen=True, kw_only=True)
class SubwordOptions:
    """The options of subwords, which every corpus has.

    ``vocab_size`` is the number of merges for BPE (as "32K BPE" means) and of pieces for
    SentencePiece. ``workers`` has no influence on the result.
    """

    subword: str = option(
        "",
        "kind of subwords (default: bpe; without a tokeniser, for languages without spaces, and "
        "for running text: sentencepiece)",
        choices=SUBWORDS,
    )
    vocab_size: int = vocabulary(32000)
    model_type: str = option("unigram", "SentencePiece's model", choices=MODEL_TYPES)
    workers: int | None = option(
        None, "processes (default: all cores); the result is the same", type=positive, metavar="N"
    )

    @property
    def cores(self) -> int:
        """How many processes work."""
        return self.workers or cores()


@dataclass(frozen=True, kw_only=True)
class PairOptions(SubwordOptions):
    """The options that every parallel corpus has; `with_defaults` fills in empty ones."""

    tokenizer: str = option(
        "",
        "word tokeniser before the subwords (default: moses for bpe; none for sentencepiece, and "
        "for languages that Moses' rules do not serve)",
        choices=TOKENIZERS,
    )
    max_dropped: float = option(
        50.0, "refuse if cleaning drops more than X%% of a text's pairs", type=percent, metavar="X"
    )


@dataclass(frozen=True)
class PrepareConfig(PairOptions):
    """What to prepare, and how.

    ``train`` (one or more corpora, joined), ``valid`` and ``test`` are prefixes: PREFIX.LANG is a
    side's file, plain or compressed; or they are files with both sides, NAME.tsv. With ``hold_out``
    N, every Nth clean train pair becomes valid if ``valid`` is None, and the pair after it test if
    ``test`` is None. Train pairs are kept with 1 to ``max_tokens`` tokens on each side and up to
    ``max_ratio`` times as many on one side as on the other (None: any); valid and test pairs are
    dropped only if a side is empty or too long. Without a tokeniser, and for languages without
    spaces, characters count: up to eight for a token, and compared with the usual ratio of the
    text. ``punctuation``: quotes, dashes and the like are written in one way in the model's text;
    the plain text keeps them, since translations are scored against it. ``lowercase`` changes both.
    """

    train: tuple[Path, ...] = option(
        MISSING,
        f"training text: {_TEXT}; several are joined",
        type=Path,
        nargs="+",
        metavar="PREFIX",
    )
    valid: Path | None = option(None, "valid text, in the same forms", type=Path, metavar="PREFIX")
    test: Path | None = option(None, "test text, in the same forms", type=Path, metavar="PREFIX")
    source_lang: str = option("", "source language, as en", required=True, metavar="LANG")
    target_lang: str = option("", "target language, as de", required=True, metavar="LANG")
    out: Path = option(None, "folder to make", type=Path, required=True, metavar="DATA")
    max_tokens: int = option(
        250,
        "drop pairs with a side of more than N tokens (without tokens: 8 N characters)",
        type=positive,
        metavar="N",
    )
    max_ratio: float | None = option(
        1.5,
        "drop train pairs with over X times as many tokens on one side as on the other",
        type=ratio,
        metavar="X",
    )
    punctuation: bool = option(
        False, "write quotes, dashes and spaces around punctuation in one way, for the model"
    )
    lowercase: bool = option(False, "everything in small letters")
    hold_out: int | None = option(
        None,
        "without --valid: every Nth clean training pair is valid; without --test: the pair after "
        "it is test",
        type=int,
        metavar="N",
    )

    @property
    def langs(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_lang, self.target_lang

    @property
    def counts_characters(self) -> bool:
        """Whether lengths are counted in characters, not in tokens."""
        return self.unspaced or self.tokenizer == "none"

    @property
    def model_folder(self) -> str:
        """The folder of the text that subwords are made of: the plain text, if nothing changes."""
        return "raw" if self.tokenizer == "none" and not self.punctuation else "tokenised"

    @property
    def unspaced(self) -> bool:
        """Whether a language has no spaces between words."""
        return not all(map(has_spaces, self.langs))

    def prefixes(self, split: str) -> tuple[Path, ...]:
        """The prefixes of a split's text."""
        if split == "train":
            return self.train
        path = self.valid if split == "valid" else self.test
        return () if path is None else (path,)

    @property
    def held_out(self) -> dict[str, int]:
        """Split without a text -> its place in every ``hold_out`` train pairs."""
        places = {"valid": 0, "test": 1}
        return {split: place for split, place in places.items() if not self.prefixes(split)}


def check(config: PrepareConfig) -> None:
    """Refuse options that cannot work, before anything is written.

    Raises:
        UserError: an option is wrong.
    """
    no_colon(config.out.resolve())
    check_hold_out(config.held_out, config.hold_out, "train pair")
    if config.source_lang == config.target_lang:
        raise UserError(
            f"source and target language are both {config.source_lang!r}; they must differ"
        )
    for lang in config.langs:
        if not _LANGUAGE.fullmatch(lang):
            raise UserError(
                f"{lang!r} cannot be a language's name here; use letters, digits and _ only, "
                "as in en, pt_BR or zho_Hans"
            )


def with_defaults(config: PrepareConfig) -> PrepareConfig:
    """``config`` with a tokeniser and a kind of subwords that suit its languages.

    What the user chose stays.
    """
    tokenizer, subword = config.tokenizer, config.subword
    if not tokenizer:
        serves = not config.unspaced and restored_by_moses(config.target_lang)
        tokenizer = "moses" if serves and subword != "sentencepiece" else "none"
    if not subword:
        subword = "sentencepiece" if config.unspaced or tokenizer == "none" else "bpe"
    return replace(config, tokenizer=tokenizer, subword=subword)


def check_hold_out(held_out: Collection[str], hold_out: int | None, part: str) -> None:
    """See that each split has a text, or is held out of train, and not both.

    Args:
        held_out: the splits without a text.
        hold_out: every so many parts of train are held out.
        part: "train pair", say.

    Raises:
        UserError: a split has no text, or nothing is to be held out.
    """
    if held_out and (hold_out is None or hold_out < _MIN_HOLD_OUT):
        raise UserError(
            f"no text for {' and '.join(held_out)} is named; name one, or hold out every "
            f"Nth {part}, N at least {_MIN_HOLD_OUT}"
        )
    if hold_out is not None and not held_out:
        raise UserError("valid and test text are both named: leave --hold-out away")


def input_files(config: PrepareConfig) -> Inputs:
    """The files that ``config`` names.

    Raises:
        UserError: a file is missing, empty, or would be overwritten.
    """
    files: Inputs = {}
    for split in SPLITS:
        for prefix in config.prefixes(split):
            sides = _corpus_files(prefix, config.langs)
            files.setdefault(split, []).append(sides)
            for path in sides:
                check_outside(path, config.out)
    return files


def check_outside(path: Path, out: Path) -> None:
    """See that making ``out`` would not overwrite the text ``path``.

    Raises:
        UserError: it would.
    """
    inside, folder = path.resolve(), out.resolve()
    if inside.is_relative_to(folder) and not inside.is_relative_to(folder / ORIGINAL):
        raise UserError(f"{path} lies inside the output folder {out}; choose another --out")


def _corpus_files(prefix: Path, langs: tuple[str, str]) -> tuple[Path, ...]:
    """Both sides of a corpus, or the one file with tabs that has both."""
    if any(prefix.name.endswith(f".tsv{suffix}") for suffix in (*SUFFIXES, ZSTD)):
        return (existing_text(prefix),)
    return tuple(side_path(prefix, lang) for lang in langs)

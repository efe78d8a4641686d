"""What to prepare and how, checked before anything is written."""

import re
from collections.abc import Collection
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import option, positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.languages import has_spaces, restored_by_moses
from fairseq_mhe.prepare.subword import MODEL_TYPES, SUBWORDS
from fairseq_mhe.prepare.text import SUFFIXES, existing_text, side_path
from fairseq_mhe.prepare.tokenise import TOKENIZERS

SPLITS = ("train", "valid", "test")
ORIGINAL = "original"  # folder of the output where the scripts of known corpora put what they fetch
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MIN_HOLD_OUT = 3  # valid, test and at least one pair for train
_TEXT = "PREFIX.LANG for each language, or NAME.tsv (source TAB target), plain, .gz or .xz"
_CHOICES = {"subword": SUBWORDS, "tokenizer": TOKENIZERS, "model_type": MODEL_TYPES}
_AT_LEAST_ONE = {
    "vocab_size": "vocabulary size",
    "max_tokens": "maximum of tokens",
    "max_ratio": "maximal ratio",
    "workers": "number of workers",
}
# split -> of each of its corpora both sides, or the one file that has both
Inputs = dict[str, list[tuple[Path, ...]]]


def processes() -> Any:
    """How many processes work."""
    told = "processes (default: all cores); the result is the same"
    return option(None, told, type=positive, metavar="N")


def merges(default: int) -> Any:
    """The field of the vocabulary's size, with a default that suits a corpus."""
    return option(
        default,
        "merges (bpe) or pieces (sentencepiece), of both languages together",
        type=positive,
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class SubwordOptions:
    """The options that every corpus has.

    ``vocab_size`` is the number of merges for BPE (as "32K BPE" means) and of pieces for
    SentencePiece. ``workers`` has no influence on what is written. `with_defaults` fills in
    ``subword`` and ``tokenizer`` where they are empty.
    """

    subword: str = option(
        "",
        "kind of subwords (default: bpe; without a tokeniser, and for languages without spaces, "
        "sentencepiece)",
        choices=SUBWORDS,
    )
    vocab_size: int = merges(32000)
    model_type: str = option("unigram", "SentencePiece's model", choices=MODEL_TYPES)
    tokenizer: str = option(
        "",
        "word tokeniser before the subwords (default: moses for bpe; none for sentencepiece, and "
        "for languages that Moses' rules do not serve)",
        choices=TOKENIZERS,
    )
    max_dropped: float = option(
        50.0, "refuse where cleaning drops more than X%% of a text's pairs", type=float, metavar="X"
    )
    workers: int | None = processes()

    @property
    def cores(self) -> int:
        """How many processes work."""
        return self.workers or cores()


@dataclass(frozen=True, kw_only=True)
class SubwordChoice:
    """The options that every corpus of running text has."""

    subword: str = option("sentencepiece", "kind of subwords", choices=SUBWORDS)
    vocab_size: int = option(
        8000, "pieces (sentencepiece) or merges (bpe)", type=positive, metavar="N"
    )
    model_type: str = option("unigram", "SentencePiece's model", choices=MODEL_TYPES)
    block: int = option(
        512,
        "split paragraphs between words where they are longer than a block of so many subwords, "
        "since fairseq skips them in training and stops at them in validation; not less than "
        "--tokens-per-sample in training",
        type=int,
        metavar="N",
    )
    lowercase: bool = option(False, "everything in small letters")
    workers: int | None = processes()

    @property
    def cores(self) -> int:
        """How many processes work."""
        return self.workers or cores()


@dataclass(frozen=True)
class PrepareConfig(SubwordOptions):
    """What to prepare, and how.

    ``train`` (one or more corpora, joined), ``valid`` and ``test`` are prefixes: PREFIX.LANG is a
    side's file, plain or with .gz or .xz; or they are files with both sides, NAME.tsv, plain or
    compressed. With ``hold_out`` N, every Nth clean train pair becomes valid where ``valid`` is
    None, and the pair after it test where ``test`` is None.
    Train pairs are kept with 1 to ``max_tokens`` tokens on each side and up to ``max_ratio`` times
    as many on the one as on the other (None: any); valid and test pairs are dropped only where a
    side is empty or too long. Where a language is written without spaces, or there is no tokeniser,
    characters are counted in place of tokens, beside what is usual in the text. ``punctuation`` and
    ``lowercase`` as in `CleanOptions`.
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
    source_lang: str = option("", "language translated from, as en", required=True, metavar="LANG")
    target_lang: str = option("", "language translated into, as de", required=True, metavar="LANG")
    out: Path = option(None, "folder to make", type=Path, required=True, metavar="DATA")
    max_tokens: int = option(250, "drop pairs with a longer side", type=int, metavar="N")
    max_ratio: float | None = option(
        1.5,
        "drop train pairs with over X times as many tokens on one side as on the other",
        type=float,
        metavar="X",
    )
    punctuation: bool = option(
        False,
        "write quotes, dashes and spaces around punctuation in one way, in what the model sees",
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
    def unspaced(self) -> bool:
        """Whether a language has no spaces between words."""
        return not all(map(has_spaces, self.langs))

    def prefixes(self, split: str) -> tuple[Path, ...]:
        """Where the pairs of a split come from."""
        if split == "train":
            return self.train
        path = self.valid if split == "valid" else self.test
        return () if path is None else (path,)

    @property
    def held_out(self) -> dict[str, int]:
        """Split without a text of its own -> which of every ``hold_out`` train pairs it gets."""
        places = {"valid": 0, "test": 1}
        return {split: place for split, place in places.items() if not self.prefixes(split)}


def check(config: PrepareConfig) -> None:
    """Refuse what cannot work, before anything is written.

    Raises:
        UserError: an option is wrong.
    """
    for option_name, choices in _CHOICES.items():
        value, name = getattr(config, option_name), option_name.replace("_", " ")
        if value and value not in choices:
            raise UserError(f"unknown {name} {value!r}; choose from {', '.join(choices)}")
    if not config.train:
        raise UserError("no training text is named; give at least one prefix")
    check_hold_out(config.held_out, config.hold_out, "train pair")
    if config.source_lang == config.target_lang:
        raise UserError(
            f"source and target language are both {config.source_lang!r}; they must differ"
        )
    for lang in config.langs:
        if not _LANGUAGE.fullmatch(lang):
            raise UserError(
                f"{lang!r} cannot be a language's name here; use letters, digits and _ "
                "only, as in en, pt_BR or zho_Hans"
            )
    for option_name, name in _AT_LEAST_ONE.items():
        limit = getattr(config, option_name)
        if limit is not None and limit < 1:
            raise UserError(f"the {name} is {limit}; it must be at least 1")


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
    """See that each split has a text, of its own or held out of train, and not both.

    ``held_out``: the splits that have none; ``part``: of train, every Nth of which is held out.

    Raises:
        UserError: one has none or both.
    """
    if held_out and (hold_out is None or hold_out < _MIN_HOLD_OUT):
        raise UserError(
            f"no text for {' and '.join(held_out)} is named; name one, or hold out every "
            f"Nth {part}, N at least {_MIN_HOLD_OUT}"
        )
    if hold_out is not None and not held_out:
        raise UserError(
            "valid and test text are both named, so that nothing is to be held out of train"
        )


def input_files(config: PrepareConfig) -> Inputs:
    """The files that ``config`` names.

    Raises:
        UserError: a file is missing, empty, or would be overwritten.
    """
    found: Inputs = {}
    for split in SPLITS:
        for prefix in config.prefixes(split):
            files = _corpus_files(prefix, config.langs)
            found.setdefault(split, []).append(files)
            for path in files:
                check_outside(path.resolve(), config.out)
    return found


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
    if any(prefix.name.endswith(f".tsv{suffix}") for suffix in SUFFIXES):
        return (existing_text(prefix),)
    return tuple(side_path(prefix, lang) for lang in langs)

"""What to prepare and how: dataclasses whose fields are command-line options, and their checks."""

from __future__ import annotations

import math
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from fairseq_mhe.common.arguments import at_least, number, positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import no_colon
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.languages import has_spaces, restored_by_moses
from fairseq_mhe.prepare.subword import SUBWORDS
from fairseq_mhe.prepare.text import SUFFIXES, existing_text, side_path
from fairseq_mhe.prepare.tokenise import TOKENIZERS

SPLITS = ("train", "valid", "test")
ORIGINAL = "original"  # folder of the output for what the scripts of known corpora fetch
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
#: Split -> its corpora, each the files of both sides, or the one file that has both.
Inputs = dict[str, list[tuple[Path, ...]]]
Options = TypeVar("Options")


def option(default: Any, help: str, **words: Any) -> Any:
    """A dataclass field that is also a command-line option; ``words`` as argparse has them."""
    return field(default=default, metadata={"help": help, **words})


def add_options(parser: ArgumentParser, options: type[Any]) -> None:
    """Add the options among the fields of a dataclass; one with default False is a flag."""
    for each in fields(options):
        words = dict(each.metadata)
        if not words:
            continue
        if each.default is False:
            words["action"] = "store_true"
        elif not words.get("required"):
            words["default"] = each.default
            if each.default not in (None, ""):
                words["help"] += " (default: %(default)s)"
        parser.add_argument(f"--{each.name.replace('_', '-')}", **words)


def from_options(options: type[Options], args: Namespace) -> Options:
    """The dataclass with the values of the command line."""
    names = [each.name for each in fields(options) if each.metadata]  # type: ignore[arg-type]
    return options(**{name: getattr(args, name) for name in names})


def vocabulary(default: int) -> Any:
    """The field of the vocabulary's size, with a default that suits a corpus."""
    help = "merges (bpe) or pieces (sentencepiece), of all languages together"
    return option(default, help, type=positive, metavar="N")


def between(least: float, most: float) -> Callable[[str], float]:
    """The type of an option: a number from ``least`` to ``most``."""

    def convert(text: str) -> float:
        value = number(text)
        if not least <= value <= most:
            raise ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return value

    return convert


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The options that all text has; valid and test may be held out of train."""

    train: Sequence[Path] = option(
        (),
        "training text, plain, .gz, .xz or .bz2; several are joined; of two languages: PREFIX.LANG "
        "for each, or NAME.tsv (source TAB target)",
        type=Path,
        nargs="+",
        required=True,
        metavar="TEXT",
    )
    valid: Path | None = option(
        None, "valid text, in the same forms", type=Path, metavar="TEXT"
    )
    test: Path | None = option(
        None, "test text, in the same forms", type=Path, metavar="TEXT"
    )
    hold_out: int | None = option(
        None,
        "without --valid: every Nth clean pair (or document) of train is valid; without --test: "
        "the one after it is test",
        type=at_least(3),
        metavar="N",
    )
    out: Path = option(None, "new data folder", type=Path, required=True, metavar="DATA")
    subword: str = option(
        "",
        "kind of subwords (default: bpe; without a tokeniser, for languages without spaces, and "
        "for running text: sentencepiece)",
        choices=SUBWORDS,
    )
    vocab_size: int = vocabulary(32000)
    lowercase: bool = option(False, "write everything in small letters")
    workers: int = option(
        cores(), "processes; the result is the same", type=positive, metavar="N"
    )

    def texts(self) -> dict[str, Sequence[Path]]:
        """Split -> its texts, if any is named."""
        others = {"valid": self.valid, "test": self.test}
        return {"train": self.train} | {
            name: [path] for name, path in others.items() if path
        }

    def split_of(self, number: int, split: str = "train") -> str:
        """The split of a part of ``split``, which may be held out of train."""
        if self.hold_out and split == "train":
            place = number % self.hold_out
            if place == 0 and self.valid is None:
                return "valid"
            if place == 1 and self.test is None:
                return "test"
        return split

    def check_splits(self) -> None:
        """Raise UserError unless each split has a text or is held out, and fairseq can read out."""
        no_colon(self.out.resolve())
        missing = [split for split in SPLITS if split not in self.texts()]
        if missing and not self.hold_out:
            raise UserError(
                f"no text for {' and '.join(missing)}: name one by --valid or --test, or hold out "
                "every Nth pair or document of train by --hold-out N"
            )
        if self.hold_out and not missing:
            raise UserError("--valid and --test are given: leave --hold-out out")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(TextOptions):
    """What to prepare, and how.

    ``max_ratio`` None: any, as in valid and test. ``punctuation`` changes the model's text only,
    since translations are scored against the plain text; ``lowercase`` changes both.
    """

    source_lang: str = option("", "source language, as en", required=True, metavar="LANG")
    target_lang: str = option("", "target language, as de", required=True, metavar="LANG")
    tokenizer: str = option(
        "",
        "word tokeniser before the subwords (default: moses for bpe; none for sentencepiece, and "
        "for languages that Moses' rules do not serve)",
        choices=TOKENIZERS,
    )
    max_dropped: float = option(
        50.0,
        "refuse if cleaning drops more than X%% of a text's pairs",
        type=between(0, 100),
        metavar="X",
    )
    max_tokens: int = option(
        250,
        "drop pairs with a side of more than N tokens (without tokens: 8 N characters)",
        type=positive,
        metavar="N",
    )
    max_ratio: float | None = option(
        1.5,
        "drop train pairs with over X times as many tokens on one side as on the other",
        type=between(1, math.inf),
        metavar="X",
    )
    punctuation: bool = option(
        False, "write quotes, dashes and spaces around punctuation in one way, for the model"
    )

    @property
    def langs(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_lang, self.target_lang

    @property
    def spaced(self) -> bool:
        """Whether both languages have spaces between words."""
        return all(map(has_spaces, self.langs))

    @property
    def counts_characters(self) -> bool:
        """Whether lengths are counted in characters, not in tokens."""
        return self.tokenizer == "none" or not self.spaced

    @property
    def model_folder(self) -> str:
        """The folder of the text that subwords are made of: the plain text, if nothing changes."""
        return "raw" if self.tokenizer == "none" and not self.punctuation else "tokenised"


def checked(config: PrepareConfig) -> PrepareConfig:
    """``config`` with what suits its languages; raises UserError for options that cannot work."""
    config.check_splits()
    if config.source_lang == config.target_lang:
        raise UserError(
            f"source and target language are both {config.source_lang!r}; they must differ"
        )
    for lang in config.langs:
        if not _LANGUAGE.fullmatch(lang):
            raise UserError(
                f"{lang!r} is not a language code; use letters, digits and _ only, as in en, "
                "pt_BR or zho_Hans"
            )
    suits = config.spaced and restored_by_moses(config.target_lang)
    moses = suits and config.subword != "sentencepiece"
    tokenizer = config.tokenizer or ("moses" if moses else "none")
    bpe = config.spaced and tokenizer != "none"
    subword = config.subword or ("bpe" if bpe else "sentencepiece")
    return replace(config, tokenizer=tokenizer, subword=subword)


def input_files(config: PrepareConfig) -> Inputs:
    """The files that ``config`` names; UserError if one is missing, empty or would be lost."""

    def sides(prefix: Path) -> tuple[Path, ...]:
        if prefix.name.endswith(tuple(f".tsv{suffix}" for suffix in SUFFIXES)):
            paths: tuple[Path, ...] = (existing_text(prefix),)
        else:
            paths = tuple(side_path(prefix, lang) for lang in config.langs)
        for path in paths:
            check_outside(path, config.out)
        return paths

    return {split: list(map(sides, texts)) for split, texts in config.texts().items()}


def check_outside(path: Path, out: Path) -> None:
    """Raise UserError if making ``out`` might overwrite the text ``path``."""
    inside, folder = path.resolve(), out.resolve()
    if inside.is_relative_to(folder) and not inside.is_relative_to(folder / ORIGINAL):
        raise UserError(f"{path} lies inside the output folder {out}; choose another --out")

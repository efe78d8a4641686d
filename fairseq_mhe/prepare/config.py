"""What to prepare and how: dataclasses whose fields are command-line options, and their checks."""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from fairseq_mhe.common.arguments import at_least, number_from
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
_TRAIN_HELP = (
    "training text, plain, .gz, .xz or .bz2; several are joined; of two languages: PREFIX.LANG for "
    "each, or NAME.tsv (source TAB target)"
)
_TABLES = tuple(f".tsv{suffix}" for suffix in SUFFIXES)


def option(default: Any, help: str, **words: Any) -> Any:
    """A dataclass field that is also a command-line option; ``words`` as argparse has them."""
    return field(default=default, metadata={"help": help, **words})


def integer(default: int | None, help: str, least: int = 1) -> Any:
    """The option of a whole number."""
    return option(default, help, type=at_least(least), metavar="N")


def vocabulary(default: int) -> Any:
    """The option of the vocabulary's size, with a default that suits a corpus."""
    return integer(default, "merges (bpe) or pieces (sentencepiece) of all languages")


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


def from_options(options: type[Any], args: Namespace) -> Any:
    """The dataclass with the values of the command line."""
    names = [each.name for each in fields(options) if each.metadata]
    return options(**{name: getattr(args, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The options that all text has; valid and test may be held out of train."""

    train: Sequence[Path] = option(
        (), _TRAIN_HELP, type=Path, nargs="+", required=True, metavar="TEXT"
    )
    valid: Path | None = option(None, "valid text, likewise", type=Path, metavar="TEXT")
    test: Path | None = option(None, "test text, likewise", type=Path, metavar="TEXT")
    hold_out: int | None = integer(
        None, "if not given: every Nth pair or document is valid, the next one test", 3
    )
    out: Path = option(None, "new data folder", type=Path, required=True, metavar="DATA")
    subword: str = option(
        "", "subwords (default: bpe after moses, else sentencepiece)", choices=SUBWORDS
    )
    vocab_size: int = vocabulary(32000)
    lowercase: bool = option(False, "write everything in small letters")
    workers: int = integer(cores(), "processes; the result is the same")

    def texts(self) -> dict[str, Sequence[Path]]:
        """Split -> its texts, if any is named."""
        held = {"valid": self.valid, "test": self.test}
        others = {split: [path] for split, path in held.items() if path}
        return {"train": self.train, **others}

    def split_of(self, number: int, split: str = "train") -> str:
        """The split that a pair or document of ``split`` goes to: train's may be held out."""
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
            splits = " and ".join(missing)
            raise UserError(
                f"no text for {splits}: name one (--valid, --test), or --hold-out N"
            )
        if self.hold_out and not missing:
            raise UserError("--valid and --test are given: leave --hold-out out")

    def check_outside(self, path: Path) -> None:
        """Raise UserError if making the folder might overwrite the text ``path``."""
        text, folder = path.resolve(), self.out.resolve()
        if text.is_relative_to(folder) and not text.is_relative_to(folder / ORIGINAL):
            out = f"the output folder {self.out}"
            raise UserError(f"{path} lies inside {out}; choose another --out")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(TextOptions):
    """What to prepare, and how.

    ``punctuation`` changes the model's text only, since translations are scored against the plain
    text; ``lowercase`` changes both.
    """

    source_lang: str = option("", "source language, as en", required=True, metavar="LANG")
    target_lang: str = option("", "target language, as de", required=True, metavar="LANG")
    tokenizer: str = option(
        "", "word tokeniser (default: moses if it suits both)", choices=TOKENIZERS
    )
    max_dropped: float = option(
        50.0,
        "refuse a text that loses over X%% of it",
        type=number_from(0, 100),
        metavar="X",
    )
    max_tokens: int = integer(
        250, "drop pairs with a side of over N tokens (without tokeniser: 8 N characters)"
    )
    max_ratio: float | None = option(
        1.5,
        "drop train pairs with a side X times as long",
        type=number_from(1),
        metavar="X",
    )
    punctuation: bool = option(
        False, "unify quotes, dashes and spaces, for the model only"
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

    def checked(self) -> Self:
        """With the tokeniser and subwords that suit the languages; UserError if none can work."""
        self.check_splits()
        if self.source_lang == self.target_lang:
            both = f"source and target language are both {self.source_lang!r}"
            raise UserError(f"{both}; they must differ")
        for lang in self.langs:
            if not _LANGUAGE.fullmatch(lang):
                advice = "use letters, digits and _ only, as in en, pt_BR or zho_Hans"
                raise UserError(f"{lang!r} is not a language code; {advice}")
        suits = self.spaced and restored_by_moses(self.target_lang)
        moses = suits and self.subword != "sentencepiece"
        tokenizer = self.tokenizer or ("moses" if moses else "none")
        bpe = self.spaced and tokenizer != "none"
        subword = self.subword or ("bpe" if bpe else "sentencepiece")
        return replace(self, tokenizer=tokenizer, subword=subword)

    def files(self) -> dict[str, list[tuple[Path, ...]]]:
        """Split -> corpora, each both sides or one table; UserError if one is missing or unsafe."""
        files = {}
        for split, texts in self.texts().items():
            files[split] = [self._sides(text) for text in texts]
        return files

    def _sides(self, text: Path) -> tuple[Path, ...]:
        if text.name.endswith(_TABLES):
            paths: tuple[Path, ...] = (existing_text(text),)
        else:
            paths = tuple(side_path(text, lang) for lang in self.langs)
        for path in paths:
            self.check_outside(path)
        return paths

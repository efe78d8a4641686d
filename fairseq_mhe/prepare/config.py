"""Options of preparation: dataclasses whose fields are command-line options, and their checks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fairseq_mhe.common.arguments import at_least, integer, number_from, option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.languages import has_spaces, restored_by_moses
from fairseq_mhe.prepare.subword import SUBWORDS
from fairseq_mhe.prepare.text import SUFFIXES, existing_text, side_path
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.prepare.tokenise import TOKENIZERS
from fairseq_mhe.prepare.zipped import text_in

SPLITS = ("train", "valid", "test")
MOST_SUBWORDS = 10**6  # SentencePiece crashes at numbers above 32 bits
ORIGINAL = "original"  # the folder for downloads, inside the data folder
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TRAIN_HELP = (
    "training texts, which are joined, plain or .gz, .xz or .bz2. A parallel text is PREFIX for "
    "the two files PREFIX.LANG, or NAME.tsv (source TAB target). --valid and --test take such "
    "names, too"
)
_TABLE_SUFFIXES = tuple(f".tsv{suffix}" for suffix in SUFFIXES)


def vocabulary(default: int) -> Any:
    """Return the field of --vocab-size, with the default of a corpus."""
    help_ = "BPE merges or SentencePiece pieces of all languages"
    return option(default, help_, type=at_least(1, MOST_SUBWORDS), metavar="N")


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The options that every kind of text has."""

    train: Sequence[Path] = option(
        (), _TRAIN_HELP, type=Path, nargs="+", required=True, metavar="TEXT"
    )
    valid: Path | None = option(None, "validation text", type=Path, metavar="TEXT")
    test: Path | None = option(None, "test text", type=Path, metavar="TEXT")
    hold_out: int | None = integer(
        None,
        "take every Nth pair or document as validation text if --valid is missing, and the next "
        "one as test text if --test is missing",
        3,
    )
    out: Path = option(None, "new data folder", type=Path, required=True, metavar="DATA")
    subword: str = option(
        "", "subwords (default: bpe after moses, else sentencepiece)", choices=SUBWORDS
    )
    vocab_size: int = vocabulary(32000)
    lowercase: bool = option(False, "lower-case all text")
    workers: int = integer(cores(), "worker processes; any number gives the same result")

    def texts(self) -> dict[str, Sequence[Path]]:
        """Return split -> its texts, for the splits that an option names."""
        optional = {"valid": self.valid, "test": self.test}
        given = {split: [path] for split, path in optional.items() if path}
        return {"train": self.train, **given}

    def split_of(self, number: int, split: str) -> str:
        """Return the split for pair or document ``number`` of ``split``, by --hold-out."""
        if self.hold_out and split == "train":
            remainder = number % self.hold_out
            if remainder == 0 and self.valid is None:
                return "valid"
            if remainder == 1 and self.test is None:
                return "test"
        return split

    def check_splits(self) -> None:
        """Raise UserError if a split has no text, or if no split needs --hold-out."""
        missing = [split for split in SPLITS if split not in self.texts()]
        if missing and not self.hold_out:
            splits = " and ".join(missing)
            raise UserError(
                f"no text for {splits}: name it (--valid, --test), or give --hold-out N"
            )
        if self.hold_out and not missing:
            raise UserError("--valid and --test are given: remove --hold-out")

    def check_outside(self, path: Path) -> None:
        """Raise UserError if ``path`` lies in ``out``, where a step might overwrite it."""
        text, folder = path.resolve(), self.out.resolve()
        if text.is_relative_to(folder) and not text.is_relative_to(folder / ORIGINAL):
            out = f"the output folder {self.out}"
            raise UserError(f"{path} lies inside {out}; choose another --out")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(TextOptions):
    """The options of `fairseq-mhe prepare`; ``lowercase`` also changes raw/, BLEU's references."""

    source_lang: str = option("", "source language code", required=True, metavar="LANG")
    target_lang: str = option("", "target language code", required=True, metavar="LANG")
    tokenizer: str = option(
        "", "tokeniser (default: moses if it suits both languages)", choices=TOKENIZERS
    )
    max_dropped: float = option(
        50.0,
        "refuse a text if cleaning drops more than X%% of its pairs",
        type=number_from(0, 100),
        metavar="X",
    )
    max_tokens: int = integer(
        250,
        "drop training pairs with more than N tokens on a side; without a tokeniser 8 characters "
        "count as a token, in languages without spaces 4",
    )
    # Moses' own default. It keeps the embedded corpus, where one word may be six.
    max_ratio: float | None = option(
        9.0,
        "drop training pairs if one side is more than X times as long as the other",
        type=number_from(1),
        metavar="X",
    )
    punctuation: bool = option(
        False,
        "unify quotes, dashes and spaces in the text of the model, not in the references",
    )

    @property
    def langs(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.source_lang, self.target_lang

    @property
    def processing(self) -> TextProcessing:
        """How the text is processed, once `checked` has chosen tokeniser and subwords."""
        return TextProcessing(
            self.source_lang,
            self.target_lang,
            self.tokenizer,
            self.subword,
            punctuation=self.punctuation,
            lowercase=self.lowercase,
        )

    @property
    def have_spaces(self) -> bool:
        """Whether both languages have spaces between words."""
        return all(map(has_spaces, self.langs))

    @property
    def counts_characters(self) -> bool:
        """Whether cleaning measures lengths in characters, not in tokens."""
        return self.tokenizer == "none" or not self.have_spaces

    @property
    def model_folder(self) -> str:
        """The folder of the text to segment: raw/, unless tokens or punctuation differ from it."""
        return "raw" if self.tokenizer == "none" and not self.punctuation else "tokenised"

    def checked(self) -> Self:
        """Return a copy with tokeniser and subword model chosen; UserError for unusable options."""
        self.check_splits()
        if self.source_lang == self.target_lang:
            problem = f"source and target language are both {self.source_lang!r}"
            raise UserError(f"{problem}; they must differ")
        for lang in self.langs:
            if not _LANGUAGE.fullmatch(lang):
                advice = "use letters, digits and _ only, as in en, pt_BR or zho_Hans"
                raise UserError(f"{lang!r} is not a language code; {advice}")
        moses_suits = self.have_spaces and restored_by_moses(self.target_lang)
        use_moses = moses_suits and self.subword != "sentencepiece"
        tokenizer = self.tokenizer or ("moses" if use_moses else "none")
        use_bpe = self.have_spaces and tokenizer != "none"
        subword = self.subword or ("bpe" if use_bpe else "sentencepiece")
        return replace(self, tokenizer=tokenizer, subword=subword)

    def files(self) -> dict[str, list[tuple[Path, ...]]]:
        """Return split -> files of each text: two sides, or one table; UserError if unusable."""
        files = {}
        for split, texts in self.texts().items():
            files[split] = [self._files_of(text) for text in texts]
        return files

    def _files_of(self, text: Path) -> tuple[Path, ...]:
        if text.suffix == ".zip" and text.is_file():
            text = text_in(text, self.langs)
        if text.name.endswith(_TABLE_SUFFIXES):
            paths: tuple[Path, ...] = (existing_text(text),)
        else:
            paths = tuple(side_path(text, lang) for lang in self.langs)
        for path in paths:
            self.check_outside(path)
        return paths

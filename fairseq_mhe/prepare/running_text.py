"""From running text, documents with empty lines between them, to a folder for language models."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import at_least, option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import no_colon, sha256_of_all
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.clean import model_text, normalise
from fairseq_mhe.prepare.config import (
    SPLITS,
    SubwordOptions,
    check_hold_out,
    check_outside,
    vocabulary,
)
from fairseq_mhe.prepare.manifest import TEXT, Counts, open_manifest
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.steps import learn, make_binary, segment, versions
from fairseq_mhe.prepare.text import count_lines, existing_text, read_lines

#: What begins a document: a line after an empty one, a heading like ``= Title =``, or a file.
EMPTY_LINES, TITLES, FILES = "empty lines", "titles", "files"
#: A heading of an article; sections have two and more marks on each side.
_TITLE = re.compile(r" ?= [^=].* = ?")


@dataclass(frozen=True, kw_only=True)
class TextOptions(SubwordOptions):
    """The options that every corpus of running text has."""

    vocab_size: int = vocabulary(8000)
    block: int = option(
        512,
        "split paragraphs between words if they are longer than a block of N subwords, since "
        "fairseq skips them in training and stops at them in validation; not less than "
        "--tokens-per-sample in training",
        type=at_least(8),
        metavar="N",
    )
    lowercase: bool = option(False, "everything in small letters")


@dataclass(frozen=True, kw_only=True)
class TextConfig(TextOptions):
    """What to prepare, and how: UTF-8 text with a paragraph a line.

    With ``hold_out`` N, every Nth document of ``train`` becomes valid if ``valid`` is None, and the
    document after it test if ``test`` is None. ``lang``: the language, for the manifest.
    ``documents``: what begins one.
    """

    train: tuple[Path, ...] = option(
        MISSING,
        "training text, plain, .gz, .xz or .bz2; several are joined",
        type=Path,
        nargs="+",
        metavar="FILE",
    )
    valid: Path | None = option(None, "valid text", type=Path, metavar="FILE")
    test: Path | None = option(None, "test text", type=Path, metavar="FILE")
    hold_out: int | None = option(
        None,
        "without --valid: every Nth document of train is valid; without --test: the one after it "
        "is test",
        type=int,
        metavar="N",
    )
    lang: str = option("en", "the language, as en", metavar="LANG")
    out: Path = option(None, "folder to make", type=Path, required=True, metavar="DATA")
    documents: str = EMPTY_LINES

    def texts(self) -> dict[str, tuple[Path, ...]]:
        """Split -> its files, if it has any."""
        others = {"valid": self.valid, "test": self.test}
        return {"train": self.train} | {name: (path,) for name, path in others.items() if path}

    @property
    def held_out(self) -> dict[str, int]:
        """Split without a text -> its place in every ``hold_out`` documents."""
        given = self.texts()
        return {split: place for place, split in enumerate(SPLITS[1:]) if split not in given}

    def split_of(self, source: str, number: int) -> str:
        """The split of a document, by the split of its file and its number there."""
        if source == "train" and self.hold_out:
            for split, place in self.held_out.items():
                if number % self.hold_out == place:
                    return split
        return source


def prepare_text(
    config: TextConfig, report: Report = silent, source: dict[str, Any] | None = None
) -> Path:
    """Make the folder of ``config``, or what of it is missing, and return its path.

    ``source``: where the text comes from, for the manifest.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; the same call
            resumes.
    """
    _check(config)
    config = replace(config, subword=config.subword or "sentencepiece")
    heading: dict[str, Any] = {
        "form": TEXT,
        "source_lang": config.lang,
        "target_lang": config.lang,
        "subword": config.subword,
        "vocab_size": config.vocab_size,
        "tokenizer": "none",
        "options": {"lowercase": True} if config.lowercase else {},
        "versions": versions("sentencepiece", "subword-nmt"),
        **({"source": source} if source else {}),
    }
    with open_manifest(config.out, heading, config.cores) as manifest:
        checksums = sha256_of_all(list(chain(*config.texts().values())), config.cores)
        made_from = {
            "inputs": {
                split: [checksums[path] for path in paths]
                for split, paths in config.texts().items()
            },
            "options": {
                "hold_out": config.hold_out,
                "lowercase": config.lowercase,
                "documents": config.documents,
            },
        }
        counts = manifest.run("clean", made_from, partial(_clean, config))
        lines = {split: count["kept"] for split, count in counts.items()}
        report("clean", sum(lines.values()), sum(lines.values()))
        clean, segmented = (
            {split: manifest.folder / folder / f"{split}.txt" for split in SPLITS}
            for folder in ("raw", "subword")
        )
        model = learn(manifest, config, [clean["train"]], lines["train"], report)
        # A block has a beginning and an end beside its subwords.
        most = config.block - 2
        segment(manifest, list(clean.values()), model, config.cores, report, most)
        make_binary(manifest, segmented, ["dict.txt"], config.cores, report)
        manifest.complete(lines=lines)
        for split, count in counts.items():
            say(f"{split}: {count['documents']:,} documents, {count['kept']:,} paragraphs")
    return config.out


def _check(config: TextConfig) -> None:
    """Refuse what cannot work, before anything is written.

    Raises:
        UserError: an option is wrong, or a file is missing, empty, or would be overwritten.
    """
    no_colon(config.out.resolve())
    check_hold_out(config.held_out, config.hold_out, "document of train by --hold-out N")
    for path in chain(*config.texts().values()):
        check_outside(existing_text(path), config.out)


def documents(paths: tuple[Path, ...], begins: str = EMPTY_LINES) -> Iterator[list[str]]:
    """The documents of some files, each the normalised paragraphs that have any text.

    ``begins``: what begins a document, beside a file. Documents without text are left out.
    """
    for path in paths:
        document: list[str] = []
        for line in read_lines(path):
            text = normalise(line)
            title = begins == TITLES and _TITLE.fullmatch(line)
            if document and (title or (begins == EMPTY_LINES and not text)):
                yield document
                document = []
            if text:
                document.append(text)
        if document:
            yield document


def _clean(config: TextConfig, work: Path) -> Counts:
    """The step from files to raw/: normalised documents with empty lines between them."""
    counts = {split: {"read": 0, "kept": 0, "documents": 0} for split in SPLITS}
    tokens = model_text(config.lang, "none", False, config.lowercase)
    (work / "raw").mkdir()
    with ExitStack() as stack:
        files = {
            split: stack.enter_context(
                (work / "raw" / f"{split}.txt").open("w", encoding="utf-8", newline="\n")
            )
            for split in SPLITS
        }
        for source, paths in config.texts().items():
            counts[source]["read"] = sum(map(count_lines, paths))
            for number, document in enumerate(documents(paths, config.documents)):
                split = config.split_of(source, number)
                if counts[split]["documents"]:
                    files[split].write("\n")
                files[split].writelines(f"{tokens(line)}\n" for line in document)
                counts[split]["documents"] += 1
                counts[split]["kept"] += len(document)
    _check_kept(config, counts)
    return counts


def _check_kept(config: TextConfig, counts: Counts) -> None:
    """See that every split has a document."""
    given = config.texts()
    for split, count in counts.items():
        if not count["kept"]:
            names = ", ".join(map(str, given.get(split, given["train"])))
            too_few = " to hold any out" if split not in given else ""
            raise UserError(
                f"{names}: too few documents{too_few}, {split} would be empty; documents are "
                "text with empty lines between them"
            )

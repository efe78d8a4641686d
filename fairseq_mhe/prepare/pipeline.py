"""The whole way from parallel text to a data folder, step by step."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, product
from pathlib import Path
from typing import Any, TextIO

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.binarise import binarise
from fairseq_mhe.prepare.clean import CleanBlock, CleanOptions, clean_block
from fairseq_mhe.prepare.config import SPLITS, Inputs, PrepareConfig, check, input_files
from fairseq_mhe.prepare.manifest import Counts, Manifest, Report, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.text import SUFFIXES, count_lines, read_blocks, read_lines, text_blocks

CHUNK = 5000  # lines that a process cleans at a time
SEGMENT_BYTES = 1 << 20
COMPRESSION = 4  # of text, roughly
# Bytes that a step writes for each byte that it reads, with some to spare: clean writes the text
# twice, ids have two bytes where the subwords' names have about five.
ROOM = {"clean": 2.5, "segment": 1.6, "binarise": 1.0}
PACKAGES = ("fairseq-mhe", "ve-fairseq", "fairseq", "sacremoses", "sentencepiece", "subword-nmt")


def installed_versions() -> dict[str, str]:
    """The versions of everything that has a part in the result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def heading(config: PrepareConfig, versions: dict[str, str]) -> dict[str, Any]:
    """The manifest's keys above the steps: no path, no time and no machine, so that equal data have equal manifests."""
    options: dict[str, Any] = {"max_tokens": config.max_tokens, "max_ratio": config.max_ratio}
    if config.subword == "sentencepiece":
        options["model_type"] = config.model_type
    options |= {name: True for name in ("punctuation", "lowercase") if getattr(config, name)}
    return {
        "source_lang": config.source_lang,
        "target_lang": config.target_lang,
        "subword": config.subword,
        "vocab_size": config.vocab_size,
        "tokenizer": config.tokenizer,
        "options": options,
        "versions": versions,
    }


def open_new(path: Path, stack: ExitStack) -> TextIO:
    """A new text file for writing, closed with ``stack``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options without those that are switched off, so that what was made before there were such stays valid."""
    return {name: value for name, value in options.items() if value is not False}


def expanded_size(path: Path) -> int:
    """The bytes of a text, estimated where it is compressed."""
    return path.stat().st_size * (1 if path.suffix not in SUFFIXES[1:] else COMPRESSION)


class CleanWriter:
    """The files of clean text: every split's own, and what is held out of train."""

    def __init__(
        self, work: Path, config: PrepareConfig, folders: set[str], stack: ExitStack
    ) -> None:
        """Open them all, to be closed with ``stack``."""
        self._held_out = config.held_out
        self._every = config.hold_out or 1
        self._trained = 0  # pairs that came for train
        self._files = {
            (folder, split): [
                open_new(work / folder / f"{split}.{lang}", stack) for lang in config.langs
            ]
            for folder in folders
            for split in SPLITS
        }

    def __call__(self, split: str, block: CleanBlock) -> dict[str, int]:
        """Write a block, and return how many of its pairs went to other splits."""
        if split != "train" or not self._held_out:
            for folder, sides in block.texts.items():
                for stream, text in zip(self._files[folder, split], sides, strict=True):
                    stream.write(text)
            return {}
        kept = block.counts["kept"]
        owners = [self._owner(self._trained + number) for number in range(1, kept + 1)]
        self._trained += kept
        for folder, sides in block.texts.items():
            for side, text in enumerate(sides):
                for owner, line in zip(owners, text.split("\n")[:-1], strict=True):
                    self._files[folder, owner][side].write(f"{line}\n")
        return {other: owners.count(other) for other in self._held_out}

    def _owner(self, number: int) -> str:
        """The split of a train pair, by its number from 1."""
        place = number % self._every
        return next((split for split, its in self._held_out.items() if its == place), "train")


class Preparation:
    """One run over the steps; each method is a step."""

    def __init__(self, config: PrepareConfig, steps: Manifest, report: Report) -> None:
        self.config = config
        self.steps = steps
        self.report = report
        self.versions: dict[str, str] = steps.content["versions"]
        # Where the text that the subwords are learnt from lies.
        self.text_folder = "raw" if self.clean_options("train").keeps_text else "tokenised"

    def clean(self, files: Inputs) -> Counts:
        """Both sides checked, normalised, tokenised and filtered: raw/ and tokenised/."""
        made_from = {
            "inputs": {
                split: [[sha256(side) for side in pair] for pair in pairs]
                for split, pairs in files.items()
            },
            "options": {split: given(asdict(self.clean_options(split))) for split in SPLITS},
            "sacremoses": self.versions["sacremoses"],
        }
        if self.config.hold_out is not None:
            made_from["hold_out"] = self.config.hold_out
        size = sum(
            expanded_size(path) for pairs in files.values() for pair in pairs for path in pair
        )
        return self.steps.run(
            "clean", made_from, partial(self._clean, files), room=int(ROOM["clean"] * size)
        )

    def clean_options(self, split: str) -> CleanOptions:
        """How strict cleaning is with a split."""
        config = self.config
        max_ratio = config.max_ratio if split == "train" else None
        return CleanOptions(
            *config.langs,
            config.tokenizer,
            config.max_tokens,
            max_ratio,
            config.punctuation,
            config.lowercase,
        )

    def _clean(self, files: Inputs, work: Path) -> Counts:
        lines = {
            split: sum(count_lines(paths[0]) for paths in corpora)
            for split, corpora in files.items()
        }
        total, done = sum(lines.values()), 0
        counts = {split: Counter(read=0, kept=0) for split in SPLITS}
        with ExitStack() as stack:
            write = CleanWriter(work, self.config, {"raw", self.text_folder}, stack)
            for split, corpora in files.items():
                for block in self._cleaned(split, corpora):
                    counts[split].update(block.counts, read=block.counts.total())
                    for other, pairs in write(split, block).items():
                        counts[split].update(kept=-pairs, held_out=pairs)
                        counts[other].update(read=pairs, kept=pairs)
                    done += block.counts.total()
                    self.report("clean", min(done, total - 1), total)
        for split, corpora in files.items():
            if not counts[split]["kept"]:
                fates = ", ".join(f"{name} {count}" for name, count in counts[split].items())
                name = (
                    f"{corpora[0][0]} and its other side" if len(corpora[0]) > 1 else corpora[0][0]
                )
                raise UserError(f"cleaning leaves no pair of {name} ({fates})")
        for split in self.config.held_out:
            if not counts[split]["kept"]:
                raise UserError(
                    f"the training text is too short to hold out every {self.config.hold_out}th pair of it"
                )
        return {split: dict(counter) for split, counter in counts.items()}

    def _cleaned(self, split: str, corpora: list[tuple[Path, ...]]) -> Iterator[CleanBlock]:
        clean = partial(clean_block, options=self.clean_options(split))
        blocks = chain.from_iterable(read_blocks(paths, CHUNK) for paths in corpora)
        return ordered_map(clean, blocks, self.config.cores)

    def text(self, split: str) -> list[Path]:
        """Both sides of a split as the subwords see them."""
        return [
            self.steps.folder / self.text_folder / f"{split}.{lang}" for lang in self.config.langs
        ]

    def learn(self, train_lines: int) -> None:
        """The subword model, from the training text only."""
        config = self.config
        model_type = config.model_type if config.subword == "sentencepiece" else None
        made_from = {
            "inputs": self.steps.files("clean", "sha256", f"{self.text_folder}/train."),
            "options": {
                "subword": config.subword,
                "vocab_size": config.vocab_size,
                "model_type": model_type,
            },
            **self.subword_version(),
        }
        self.steps.run("learn", made_from, partial(self._learn, train_lines))

    def subword_version(self) -> dict[str, str]:
        """The package that learns and applies the subwords, with its version."""
        package = "sentencepiece" if self.config.subword == "sentencepiece" else "subword-nmt"
        return {package: self.versions[package]}

    def _learn(self, train_lines: int, work: Path) -> Counts:
        config = self.config
        path = work / "subword" / subword.MODEL_NAMES[config.subword]
        path.parent.mkdir()
        if config.subword == "sentencepiece":
            lines = chain.from_iterable(read_lines(side) for side in self.text("train"))
            subword.learn_sentencepiece(
                lines, 2 * train_lines, config.vocab_size, config.model_type, path
            )
        else:
            words = subword.count_words(self.text("train"), config.cores)
            subword.learn_bpe_model(words, config.vocab_size, path)
        return {}

    def segment(self, lines: int) -> None:
        """Every split in subwords: subword/."""
        model = self.model()
        made_from = {
            "inputs": self.steps.files("clean", "sha256", f"{self.text_folder}/"),
            "model": model.checksum,
            **self.subword_version(),
        }
        size = sum(self.steps.files("clean", "bytes", f"{self.text_folder}/").values())
        self.steps.run(
            "segment",
            made_from,
            partial(self._segment, model, lines),
            room=int(ROOM["segment"] * size),
        )

    def model(self) -> subword.SubwordModel:
        """The model that has been learnt."""
        (name, checksum), *_ = self.steps.files("learn", "sha256").items()
        return subword.SubwordModel(self.config.subword, self.steps.folder / name, checksum)

    def _segment(self, model: subword.SubwordModel, total: int, work: Path) -> Counts:
        counts, done = {}, 0
        for split, side in product(SPLITS, (0, 1)):
            path = self.text(split)[side]
            tally = counts[path.name] = {"tokens": 0, "longest": 0}
            with ExitStack() as stack:
                stream = open_new(work / "subword" / path.name, stack)
                texts = text_blocks(path, SEGMENT_BYTES)
                for part in ordered_map(
                    partial(subword.segment_text, model=model), texts, self.config.cores
                ):
                    stream.write(part.text)
                    tally["tokens"] += part.tokens
                    tally["longest"] = max(tally["longest"], part.longest)
                    done += part.lines
                    self.report("segment", min(done, total - 1), total)
        return counts

    def binarise(self) -> None:
        """fairseq's binary form: bin/."""
        segmented = self.steps.files("segment", "sha256")
        fairseq = self.versions.get("ve-fairseq") or self.versions.get("fairseq")
        made_from = {"inputs": segmented, "fairseq": fairseq}
        size = sum(self.steps.files("segment", "bytes").values())
        self.steps.run("binarise", made_from, self._binarise, room=int(ROOM["binarise"] * size))

    def _binarise(self, work: Path) -> Counts:
        data = self.steps.folder
        binarise(
            data / "subword",
            work / "bin",
            self.config.langs,
            self.config.cores,
            data / "logs" / "binarise.log",
        )
        with (work / "bin" / f"dict.{self.config.source_lang}.txt").open(
            encoding="utf-8"
        ) as dictionary:
            return {"dictionary": sum(1 for _ in dictionary)}

    def run(self, files: Inputs) -> None:
        """All steps, in order; what is there already is not made again."""
        counts = self.clean(files)
        lines = {split: counts[split]["kept"] for split in SPLITS}
        pairs = sum(lines.values())
        self.report("clean", pairs, pairs)
        for step, action, amount in (
            ("learn", partial(self.learn, lines["train"]), lines["train"]),
            ("segment", partial(self.segment, 2 * pairs), 2 * pairs),
            ("binarise", self.binarise, 2 * pairs),
        ):
            self.report(step, 0, amount)
            action()
            self.report(step, amount, amount)
        self.steps.content["lines"] = lines
        self.steps.write("complete")


def silent(step: str, done: int, total: int) -> None:
    """A `Report` to nobody."""


def prepare(
    config: PrepareConfig, report: Report = silent, source: Mapping[str, Any] | None = None
) -> Path:
    """Make the data folder that ``config`` describes, or what of it is not there yet, and return its path.

    ``source``: where the text comes from, for the manifest.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; nothing
        half-written is left to be
            taken for a result, and the same call goes on from there.
    """
    check(config)
    files = input_files(config)
    top = heading(config, installed_versions()) | ({"source": source} if source else {})
    with open_manifest(config.out, top) as steps:
        Preparation(config, steps, report).run(files)
    return config.out

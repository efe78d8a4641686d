"""The whole way from parallel text to a data folder, step by step."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, product
from pathlib import Path
from typing import Any, TextIO

from fairseq_mhe.errors import UserError
from fairseq_mhe.files import sha256
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.binarise import LINES_A_WORKER, binarise
from fairseq_mhe.prepare.clean import CleanOptions, clean_chunk
from fairseq_mhe.prepare.config import SPLITS, Inputs, PrepareConfig, check, input_files
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.steps import Counts, Report, Steps, open_steps
from fairseq_mhe.prepare.text import chunks, count_lines, read_lines, read_pairs

CHUNK = 5000  # lines; about a second's work for Moses' rules
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


class Preparation:
    """One run over the steps; each method is a step."""

    def __init__(self, config: PrepareConfig, steps: Steps, report: Report) -> None:
        self.config = config
        self.steps = steps
        self.report = report
        self.versions: dict[str, str] = steps.manifest["versions"]
        # Where the text that the subwords are learnt from lies.
        self.text_folder = "raw" if config.tokenizer == "none" else "tokenised"

    def clean(self, files: Inputs) -> Counts:
        """Both sides checked, normalised, tokenised and filtered: raw/ and tokenised/."""
        made_from = {
            "inputs": {split: [[sha256(side) for side in pair] for pair in pairs] for split, pairs in files.items()},
            "options": {split: asdict(self.clean_options(split)) for split in SPLITS},
            "sacremoses": self.versions["sacremoses"],
        }
        return self.steps.run("clean", made_from, partial(self._clean, files))

    def clean_options(self, split: str) -> CleanOptions:
        """How strict cleaning is with a split."""
        config = self.config
        max_ratio = config.max_ratio if split == "train" else None
        return CleanOptions(*config.langs, config.tokenizer, config.max_tokens, max_ratio)

    def _clean(self, files: Inputs, work: Path) -> Counts:
        lines = {split: sum(count_lines(source) for source, _ in pairs) for split, pairs in files.items()}
        total, done = sum(lines.values()), 0
        counts: dict[str, Counter[str]] = {}
        for split, pairs in files.items():
            counts[split] = Counter(read=0, kept=0)
            for chunk in self._clean_split(split, chain.from_iterable(read_pairs(*pair) for pair in pairs), work):
                counts[split].update(chunk, read=chunk.total())
                done += chunk.total()
                self.report("clean", min(done, total - 1), total)
            if not counts[split]["kept"]:
                fates = ", ".join(f"{name} {count}" for name, count in counts[split].items())
                raise UserError(f"cleaning leaves no pair of {files[split][0][0]} and its other side ({fates})")
        return {split: dict(counter) for split, counter in counts.items()}

    def _clean_split(self, split: str, pairs: Iterator[tuple[str, str]], work: Path) -> Iterator[Counter[str]]:
        clean = partial(clean_chunk, options=self.clean_options(split))
        with ExitStack() as stack:
            writers = {
                folder: [open_new(work / folder / f"{split}.{lang}", stack) for lang in self.config.langs]
                for folder in {"raw", self.text_folder}
            }
            for chunk in ordered_map(clean, chunks(pairs, CHUNK), self.config.cores):
                for folder, sides in writers.items():
                    kept = chunk.raw if folder == "raw" else chunk.tokenised
                    for side, stream in enumerate(sides):
                        stream.writelines(f"{pair[side]}\n" for pair in kept)
                yield chunk.counts

    def text(self, split: str) -> list[Path]:
        """Both sides of a split as the subwords see them."""
        return [self.steps.data / self.text_folder / f"{split}.{lang}" for lang in self.config.langs]

    def learn(self, train_lines: int) -> None:
        """The subword model, from the training text only."""
        config = self.config
        model_type = config.model_type if config.subword == "sentencepiece" else None
        made_from = {
            "inputs": self.steps.checksums("clean", f"{self.text_folder}/train."),
            "options": {"subword": config.subword, "vocab_size": config.vocab_size, "model_type": model_type},
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
        lines = chain.from_iterable(read_lines(side) for side in self.text("train"))
        if config.subword == "sentencepiece":
            subword.learn_sentencepiece(lines, 2 * train_lines, config.vocab_size, config.model_type, path)
        else:
            words: Counter[str] = Counter()
            for counted in ordered_map(subword.count_words, chunks(lines, CHUNK), config.cores):
                words.update(counted)
            subword.learn_bpe_model(words, config.vocab_size, path)
        return {}

    def segment(self, lines: int) -> None:
        """Every split in subwords: subword/."""
        model = self.model()
        made_from = {
            "inputs": self.steps.checksums("clean", f"{self.text_folder}/"),
            "model": model.checksum,
            **self.subword_version(),
        }
        self.steps.run("segment", made_from, partial(self._segment, model, lines))

    def model(self) -> subword.SubwordModel:
        """The model that has been learnt."""
        (name, checksum), *_ = self.steps.checksums("learn").items()
        return subword.SubwordModel(self.config.subword, self.steps.data / name, checksum)

    def _segment(self, model: subword.SubwordModel, total: int, work: Path) -> Counts:
        counts, done = {}, 0
        for split, side in product(SPLITS, (0, 1)):
            path = self.text(split)[side]
            tally = counts[path.name] = {"tokens": 0, "longest": 0}
            with ExitStack() as stack:
                stream = open_new(work / "subword" / path.name, stack)
                runs = chunks(read_lines(path), CHUNK)
                for lines in ordered_map(partial(subword.segment, model=model), runs, self.config.cores):
                    stream.writelines(f"{line}\n" for line in lines)
                    lengths = [line.count(" ") + 1 for line in lines]
                    tally["tokens"] += sum(lengths)
                    tally["longest"] = max(tally["longest"], *lengths)
                    done += len(lines)
                    self.report("segment", min(done, total - 1), total)
        return counts

    def binarise(self, train_lines: int) -> None:
        """fairseq's binary form: bin/."""
        segmented = self.steps.checksums("segment")
        fairseq = self.versions.get("ve-fairseq") or self.versions.get("fairseq")
        self.steps.run("binarise", {"inputs": segmented, "fairseq": fairseq}, partial(self._binarise, train_lines))

    def _binarise(self, train_lines: int, work: Path) -> Counts:
        workers = max(1, min(self.config.cores, train_lines // LINES_A_WORKER))
        data = self.steps.data
        binarise(data / "subword", work / "bin", self.config.langs, workers, data / "logs" / "binarise.log")
        with (work / "bin" / f"dict.{self.config.source_lang}.txt").open(encoding="utf-8") as dictionary:
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
            ("binarise", partial(self.binarise, lines["train"]), 2 * pairs),
        ):
            self.report(step, 0, amount)
            action()
            self.report(step, amount, amount)
        self.steps.manifest["lines"] = lines
        self.steps.write("complete")


def silent(step: str, done: int, total: int) -> None:
    """A `Report` to nobody."""


def prepare(config: PrepareConfig, report: Report = silent) -> Path:
    """Make the data folder that ``config`` describes, or what of it is not there yet, and return its path.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; nothing half-written is left to be
            taken for a result, and the same call goes on from there.
    """
    check(config)
    files = input_files(config)
    with open_steps(config.out, heading(config, installed_versions())) as steps:
        Preparation(config, steps, report).run(files)
    return config.out

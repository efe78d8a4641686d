"""The whole way from parallel text to a data folder, step by step."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256_of_all
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.binarise import pair_texts
from fairseq_mhe.prepare.clean import (
    CleanBlock,
    CleanWriter,
    clean_block,
    clean_chunk,
    dropped_percent,
    fates,
    options_of,
    usual_ratio,
)
from fairseq_mhe.prepare.config import (
    SPLITS,
    Inputs,
    PrepareConfig,
    check,
    input_files,
    with_defaults,
)
from fairseq_mhe.prepare.last_steps import learn, make_binary, subword_version, versions
from fairseq_mhe.prepare.manifest import Counts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.text import (
    SUFFIXES,
    Block,
    count_lines,
    pairs_of,
    read_blocks,
    text_pieces,
)

CHUNK = 5000  # lines that a process cleans at a time
SEGMENT_BYTES = 1 << 20
_COMPRESSION = 4  # of text, roughly
# Bytes that a step writes for each byte that it reads, with some to spare: clean writes the text
# twice, ids have two bytes where the subwords' names have about five.
_ROOM = {"clean": 2.5, "segment": 1.6, "binarise": 1.0}
WARN_ABOVE = 10  # percent of the pairs that are dropped


def _heading(config: PrepareConfig) -> dict[str, Any]:
    """The manifest's keys above the steps.

    They hold no path, no time and no machine, so that equal data have equal manifests.
    """
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
        "versions": versions("sacremoses", "sentencepiece", "subword-nmt"),
    }


def _expanded_size(path: Path) -> int:
    """The bytes of a text, estimated where it is compressed."""
    return path.stat().st_size * (_COMPRESSION if path.suffix in SUFFIXES[1:] else 1)


class _Preparation:
    """One run over the steps; each method is a step."""

    def __init__(self, config: PrepareConfig, steps: Manifest, report: Report) -> None:
        self.config = config
        self.steps = steps
        self.report = report
        # Where the text that the subwords are learnt from lies.
        self.text_folder = "raw" if options_of(config, "train").keeps_text else "tokenised"

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

    def clean(self, files: Inputs) -> Counts:
        """Both sides checked, normalised, tokenised and filtered: raw/ and tokenised/."""
        options = {}
        sides = [side for pairs in files.values() for pair in pairs for side in pair]
        checksums = sha256_of_all(sides, self.config.cores)
        inputs = {
            split: [[checksums[side] for side in pair] for pair in pairs]
            for split, pairs in files.items()
        }
        size = sum(map(_expanded_size, sides))
        for split in SPLITS:
            # Only what is switched on: the manifest stays short.
            given = asdict(options_of(self.config, split)).items()
            options[split] = {name: value for name, value in given if value is not False}
        made_from = {
            "inputs": inputs,
            "options": options,
            "sacremoses": self.steps.content["versions"]["sacremoses"],
        }
        if self.config.hold_out is not None:
            made_from["hold_out"] = self.config.hold_out
        action = partial(self._clean, files)
        return self.steps.run("clean", made_from, action, room=_ROOM["clean"] * size)

    def _clean(self, files: Inputs, work: Path) -> Counts:
        total = done = 0
        for corpora in files.values():
            total += sum(count_lines(paths[0]) for paths in corpora)
        counts = {split: Counter(read=0, kept=0) for split in SPLITS}
        with ExitStack() as stack:
            write = CleanWriter(work, self.config, stack)
            for split, corpora in files.items():
                for block in self._cleaned(split, corpora):
                    counts[split].update(block.counts, read=block.counts.total())
                    for other, pairs in write(split, block).items():
                        counts[split].update(kept=-pairs, held_out=pairs)
                        counts[other].update(read=pairs, kept=pairs)
                    done += block.counts.total()
                    self.report("clean", min(done, total - 1), total)
        self._check_kept(files, counts)
        return {split: dict(counter) for split, counter in counts.items()}

    def _cleaned(self, split: str, corpora: list[tuple[Path, ...]]) -> Iterator[CleanBlock]:
        options, usual = options_of(self.config, split), 1.0
        if options.characters and options.max_ratio is not None:
            usual = usual_ratio(chain.from_iterable(map(pairs_of, self._blocks(corpora))))
        clean = partial(clean_block, options=options, usual=usual)
        clean_chunk([], options)  # makes the tokenisers, once for all processes
        return ordered_map(clean, self._blocks(corpora), self.config.cores)

    @staticmethod
    def _blocks(corpora: list[tuple[Path, ...]]) -> Iterator[Block]:
        return chain.from_iterable(read_blocks(paths, CHUNK) for paths in corpora)

    def _check_kept(self, files: Inputs, counts: Mapping[str, Counter[str]]) -> None:
        """See that every split has a pair left."""
        for split, corpora in files.items():
            other = " and its other side" if len(corpora[0]) > 1 else ""
            if not counts[split]["kept"]:
                told = ", ".join(f"{name} {count}" for name, count in counts[split].items())
                raise UserError(f"cleaning leaves no pair of {corpora[0][0]}{other} ({told})")
            dropped = dropped_percent(counts[split])
            if dropped > self.config.max_dropped:
                raise UserError(
                    f"cleaning drops {dropped:.0f}% of {corpora[0][0]}{other} "
                    f"({fates(counts[split])}): look at the text, choose another --max-ratio or "
                    "--max-tokens, or let it by --max-dropped 100"
                )
        for split in self.config.held_out:
            if not counts[split]["kept"]:
                raise UserError(
                    "the training text is too short to hold out every "
                    f"{self.config.hold_out}th pair of it"
                )

    def _text(self, split: str) -> list[Path]:
        """Both sides of a split as the subwords see them."""
        folder = self.steps.folder / self.text_folder
        return [folder / f"{split}.{lang}" for lang in self.config.langs]

    def learn(self, train_lines: int) -> None:
        """The subword model, from the training text only."""
        self.model = learn(self.steps, self.config, self._text("train"), 2 * train_lines)

    def segment(self, lines: int) -> None:
        """Every split in subwords: subword/."""
        text = f"{self.text_folder}/"
        made_from = {
            "inputs": self.steps.files("clean", "sha256", text),
            "model": self.model.checksum,
            **subword_version(self.steps, self.config.subword),
        }
        room = _ROOM["segment"] * sum(self.steps.files("clean", "bytes", text).values())
        self.steps.run("segment", made_from, partial(self._segment, lines), room)

    def _segment(self, total: int, work: Path) -> Counts:
        counts, done = {}, 0
        segment = partial(subword.segment_text, model=self.model)
        subword.segment([], self.model)  # reads it, once for all processes
        (work / "subword").mkdir()
        for split, side in product(SPLITS, (0, 1)):
            path = self._text(split)[side]
            tally = counts[path.name] = {"tokens": 0, "longest": 0}
            pieces = text_pieces(path, SEGMENT_BYTES)
            written = work / "subword" / path.name
            with written.open("wb") as stream:
                for part in ordered_map(segment, pieces, self.config.cores):
                    stream.write(part.text)
                    tally["tokens"] += part.tokens
                    tally["longest"] = max(tally["longest"], part.longest)
                    done += part.lines
                    self.report("segment", min(done, total - 1), total)
        return counts

    def binarise(self) -> None:
        """fairseq's binary form: bin/."""
        langs, steps = self.config.langs, self.steps
        room = _ROOM["binarise"] * sum(steps.files("segment", "bytes").values())
        names = [f"dict.{lang}.txt" for lang in langs]
        texts = pair_texts(steps.folder / "subword", langs)
        make_binary(steps, texts, names, self.config.cores, room)


def prepare(
    config: PrepareConfig, report: Report = silent, source: Mapping[str, Any] | None = None
) -> Path:
    """Make the data folder of ``config``, or what of it is missing, and return its path.

    ``source``: where the text comes from, for the manifest.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; nothing
        half-written is left to be taken for a result, and the same call goes on from there.
    """
    check(config)
    files = input_files(config)
    config = with_defaults(config)
    top = _heading(config)
    if source:
        top["source"] = source
    with open_manifest(config.out, top, config.cores) as steps:
        _Preparation(config, steps, report).run(files)
        for split, counts in steps.content["steps"]["clean"]["counts"].items():
            dropped = dropped_percent(counts)
            warning = f"warning: {dropped:.0f}% dropped: " if dropped > WARN_ABOVE else ""
            say(f"{warning}{split}: {fates(counts)}")
    return config.out

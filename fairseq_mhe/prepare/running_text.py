"""From running text, documents with empty lines between them, to a folder for language models."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import MISSING, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256_of_all
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.clean import model_text, normalise
from fairseq_mhe.prepare.config import SPLITS, SubwordChoice, check_hold_out, check_outside
from fairseq_mhe.prepare.data_folder import TEXT
from fairseq_mhe.prepare.last_steps import learn, make_binary, subword_version, versions
from fairseq_mhe.prepare.manifest import Counts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.subword import SubwordModel, segment_text
from fairseq_mhe.prepare.text import count_lines, existing_text, read_lines, text_pieces

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TextConfig(SubwordChoice):
    """What to prepare, and how: UTF-8 text, a paragraph a line, an empty line between documents.

    With ``hold_out`` N, every Nth document of ``train`` becomes valid where ``valid`` is None, and
    the document after it test where ``test`` is None. ``lang``: the language, for the manifest.
    """

    train: tuple[Path, ...] = option(
        MISSING,
        "training text, plain, .gz or .xz; several are joined",
        type=Path,
        nargs="+",
        metavar="FILE",
    )
    valid: Path | None = option(None, "valid text", type=Path, metavar="FILE")
    test: Path | None = option(None, "test text", type=Path, metavar="FILE")
    hold_out: int | None = option(
        None,
        "every Nth document of train is valid, and the one after it test, where there is no text",
        type=int,
        metavar="N",
    )
    lang: str = option("en", "the language, as en", metavar="LANG")
    out: Path = option(None, "folder to make", type=Path, required=True, metavar="DATA")

    def texts(self) -> dict[str, tuple[Path, ...]]:
        """The files of each split that has its own."""
        others = {"valid": self.valid, "test": self.test}
        return {"train": self.train} | {name: (path,) for name, path in others.items() if path}

    @property
    def held_out(self) -> dict[str, int]:
        """Split without a text of its own -> which of every ``hold_out`` documents it gets."""
        own = self.texts()
        return {split: place for place, split in enumerate(SPLITS[1:]) if split not in own}


def check_text(config: TextConfig) -> None:
    """Refuse what cannot work, before anything is written.

    Raises:
        UserError: an option is wrong, or a file is missing, empty, or would be overwritten.
    """
    part = "document of train by --hold-out N"
    check_hold_out(config.held_out, config.hold_out, part)
    for name, least in (("vocab_size", 1), ("workers", 1), ("block", 8)):
        value = getattr(config, name)
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}")
    for path in chain.from_iterable(config.texts().values()):
        check_outside(existing_text(path), config.out.resolve())


def documents(paths: tuple[Path, ...]) -> Iterator[list[str]]:
    """The documents of some files, each the normalised paragraphs that have any text.

    A file's end ends a document too; documents without text are none.
    """
    for path in paths:
        document: list[str] = []
        for line in map(normalise, read_lines(path)):
            if line:
                document.append(line)
            elif document:
                yield document
                document = []
        if document:
            yield document


def split_long(tokens: list[str], most: int, kind: str) -> list[list[str]]:
    """Subwords of a ``kind`` in lines of at most ``most``, split between words if one fits in."""
    pieces = []
    while len(tokens) > most:
        end = most
        while end and not _between_words(tokens[end - 1], tokens[end], kind):
            end -= 1
        end = end or most  # a word longer than a block
        pieces.append(tokens[:end])
        tokens = tokens[end:]
    return [*pieces, tokens]


def _between_words(before: str, after: str, kind: str) -> bool:
    return not before.endswith("@@") if kind == "bpe" else after.startswith("\u2581")


class _Preparation:
    """One run over the steps; each method is a step."""

    def __init__(self, config: TextConfig, steps: Manifest, report: Report) -> None:
        self.config, self.steps, self.report = config, steps, report

    def run(self) -> Counts:
        """All steps, in order; what is there already is not made again."""
        config, steps = self.config, self.steps
        given = config.texts()
        checksums = sha256_of_all([path for of in given.values() for path in of], config.cores)
        inputs = {split: [checksums[path] for path in of] for split, of in given.items()}
        options: dict[str, Any] = {"hold_out": config.hold_out, "lowercase": config.lowercase}
        counts = steps.run("clean", {"inputs": inputs, "options": options}, self._clean)
        lines = sum(count["kept"] for count in counts.values())
        self.report("clean", lines, lines)
        text = [steps.folder / "raw" / "train.txt"]
        model = learn(steps, config, text, counts["train"]["kept"])
        self.report("learn", lines, lines)
        made_from = {
            "inputs": steps.files("clean", "sha256"),
            "model": model.checksum,
            "block": config.block,
            **subword_version(steps, config.subword),
        }
        steps.run("segment", made_from, partial(self._segment, model))
        self.report("segment", lines, lines)
        texts = {split: steps.folder / "subword" / f"{split}.txt" for split in SPLITS}
        make_binary(steps, texts, ["dict.txt"], config.cores)
        self.report("binarise", lines, lines)
        steps.content["lines"] = {split: count["kept"] for split, count in counts.items()}
        steps.write("complete")
        return counts

    def _clean(self, work: Path) -> Counts:
        config, own = self.config, self.config.texts()
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
            for source, paths in own.items():
                counts[source]["read"] = sum(map(count_lines, paths))
                for number, document in enumerate(documents(paths)):
                    split = self._split_of(source, number)
                    lines = "".join(f"{tokens(line)}\n" for line in document)
                    files[split].write("\n" * bool(counts[split]["documents"]) + lines)
                    counts[split]["documents"] += 1
                    counts[split]["kept"] += len(document)
        for split, count in counts.items():
            if not count["kept"]:
                names = ", ".join(map(str, own.get(split, own["train"])))
                too_few = " to hold any out" if split not in own else ""
                raise UserError(
                    f"{names}: too few documents{too_few}, {split} would be empty; documents are "
                    "text with empty lines between them"
                )
        return counts

    def _split_of(self, source: str, number: int) -> str:
        if source == "train" and self.config.hold_out:
            for split, place in self.config.held_out.items():
                if number % self.config.hold_out == place:
                    return split
        return source

    def _segment(self, model: SubwordModel, work: Path) -> Counts:
        counts = {}
        (work / "subword").mkdir()
        for split in SPLITS:
            name = f"{split}.txt"
            parts = ordered_map(
                partial(segment_text, model=model),
                text_pieces(self.steps.folder / "raw" / name, _BLOCK_BYTES),
                self.config.cores,
            )
            with (work / "subword" / name).open("w", encoding="utf-8", newline="\n") as stream:
                tally = counts[split] = {"tokens": 0, "lines": 0}
                for line in chain.from_iterable(p.text[:-1].decode().split("\n") for p in parts):
                    # A block has a beginning and an end beside its subwords.
                    pieces = split_long(line.split(" "), self.config.block - 2, model.kind)
                    stream.writelines(f"{' '.join(piece)}\n" for piece in pieces)
                    tally["tokens"] += len(line.split())
                    tally["lines"] += len(pieces)
        return counts


def prepare_text(
    config: TextConfig, report: Report = silent, source: dict[str, Any] | None = None
) -> Path:
    """Make the folder of ``config``, or what of it is missing, and return its path.

    ``source``: where the text comes from, for the manifest.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; nothing
        half-written is left to be taken for a result, and the same call goes on from there.
    """
    check_text(config)
    heading: dict[str, Any] = {
        "form": TEXT,
        "source_lang": config.lang,
        "target_lang": config.lang,
        "subword": config.subword,
        "vocab_size": config.vocab_size,
        "tokenizer": "none",
        "options": {"lowercase": True} if config.lowercase else {},
        "versions": versions("sentencepiece", "subword-nmt"),
    }
    if source:
        heading["source"] = source
    with open_manifest(config.out, heading, config.cores) as steps:
        counts = _Preparation(config, steps, report).run()
        for split, count in counts.items():
            say(f"{split}: {count['documents']:,} documents, {count['kept']:,} paragraphs")
    return config.out

"""The steps that all text shares: learn subwords, segment the text, make it binary."""

import platform
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_mhe.common.system import installed
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.binarise import ROOM, make_binary
from fairseq_mhe.prepare.config import SubwordOptions
from fairseq_mhe.prepare.manifest import Counts, Manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import report
from fairseq_mhe.prepare.subword import MODEL_NAMES, SUBWORDS, SubwordModel
from fairseq_mhe.prepare.text import read_lines, text_pieces, total_size

SEGMENT_BYTES = 1 << 20
SUBWORD_PACKAGES = ("subword-nmt", "sentencepiece")  # in the order of SUBWORDS


def heading(
    form: str,
    langs: tuple[str, str],
    subword: str,
    tokenizer: str,
    options: Mapping[str, Any],
    source: Mapping[str, Any] | None,
    **more: Any,
) -> dict[str, Any]:
    """The manifest's keys above the steps.

    They hold no path, no time and no machine, so that equal data have equal manifests.
    """
    ours, theirs = ("fairseq-mhe", "ve-fairseq", "fairseq"), ("sacremoses", *SUBWORD_PACKAGES)
    return {
        "form": form,
        **more,
        "source_lang": langs[0],
        "target_lang": langs[1],
        "subword": subword,
        "tokenizer": tokenizer,
        "options": {name: value for name, value in options.items() if value is not False},
        "versions": {"python": platform.python_version(), **installed((*ours, *theirs))},
        **({"source": source} if source else {}),
    }


def make_subwords(
    manifest: Manifest,
    options: SubwordOptions,
    texts: Mapping[str, str],
    dictionaries: Iterable[str],
    lines: Mapping[str, int],
    most: int | None = None,
) -> None:
    """Learn subwords of the clean train texts, segment all texts, and make them binary.

    Args:
        manifest: that of the folder, after its step "clean".
        options: of subwords.
        texts: fairseq's name of each text -> its clean file in the data folder (raw/train.en).
        dictionaries: names of the dictionary's files.
        lines: split -> the lines of each of its texts.
        most: subwords of a line; longer ones are split.
    """
    model = _learn(manifest, options, texts.values(), lines["train"])
    _segment(manifest, model, texts.values(), lines, most)
    segmented = {name: f"subword/{Path(text).name}" for name, text in texts.items()}
    make_binary(manifest, segmented, dictionaries)


def _checksums_and_version(
    manifest: Manifest, texts: Iterable[str], kind: str
) -> dict[str, str | None]:
    """Clean texts, and the package that learns and applies subwords of a kind."""
    checksums = manifest.checksums("clean")
    package = SUBWORD_PACKAGES[SUBWORDS.index(kind)]
    version = {package: manifest.content["versions"][package]}
    return {**{name: checksums[name] for name in texts}, **version}


def _learn(
    manifest: Manifest, options: SubwordOptions, texts: Iterable[str], lines: int
) -> SubwordModel:
    """The subword model of the train texts, each of which has ``lines``: subword/."""
    kind, size, model_type = options.subword, options.vocab_size, options.model_type
    train = [name for name in texts if Path(name).stem == "train"]
    paths = [manifest.folder / name for name in train]
    made_from = {
        "inputs": _checksums_and_version(manifest, train, kind),
        "options": [kind, size, model_type if kind == "sentencepiece" else None],
    }

    def action(work: Path) -> None:
        model = work / "subword" / MODEL_NAMES[kind]
        model.parent.mkdir()
        if kind == "sentencepiece":
            text = (line for path in paths for line in read_lines(path) if line)
            subword.learn_sentencepiece(text, len(paths) * lines, size, model_type, model)
        else:
            subword.learn_bpe_model(subword.count_words(paths, manifest.workers), size, model)

    manifest.run("learn", made_from, action, total=len(paths) * lines)
    ((name, checksum),) = manifest.checksums("learn").items()
    return SubwordModel(kind, manifest.folder / name, checksum)


def _segment(
    manifest: Manifest,
    model: SubwordModel,
    texts: Iterable[str],
    lines: Mapping[str, int],
    most: int | None,
) -> None:
    """Clean texts in subwords: subword/."""
    paths = [manifest.folder / name for name in texts]
    total = sum(lines[path.stem] for path in paths)
    inputs = _checksums_and_version(manifest, texts, model.kind)
    made_from = {"inputs": inputs, "model": model.checksum, "most": most}

    def action(work: Path) -> Counts:
        apply = partial(subword.segment_text, model=model, most=most)
        subword.segment([], model)  # reads the model, once for all processes
        (work / "subword").mkdir()
        done, counts = 0, {}
        for path in paths:
            lengths: list[int] = []
            pieces = text_pieces(path, SEGMENT_BYTES)
            with (work / "subword" / path.name).open("wb") as stream:
                for text, text_lengths in ordered_map(apply, pieces, manifest.workers):
                    stream.write(text)
                    lengths += text_lengths
                    report("segment", min(done + len(lengths), total - 1), total)
            done += len(lengths)
            sizes = {"lines": len(lengths), "tokens": sum(lengths), "longest": max(lengths)}
            counts[path.name] = sizes
        return counts

    manifest.run("segment", made_from, action, ROOM * total_size(paths), total)

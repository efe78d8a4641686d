"""The steps that all text shares: learn subwords, segment the text, make it binary.

Making binary replaces fairseq-preprocess, which takes 7.5 times as long (CPU time, 200,000 lines);
a test compares all files with those of fairseq-preprocess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fairseq_mhe
from fairseq_mhe.common.files import write_text
from fairseq_mhe.common.system import installed
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.config import SubwordOptions
from fairseq_mhe.prepare.manifest import Counts, Manifest, file_checksums, report
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.subword import MODEL_NAMES, SubwordModel
from fairseq_mhe.prepare.text import Piece, read_lines, text_pieces

if TYPE_CHECKING:  # fairseq takes seconds to import
    from fairseq.data import Dictionary

    Numbers = np.ndarray[Any, np.dtype[Any]]

SEGMENT_BYTES = 1 << 20  # of text at a time
BINARY_BYTES = 1 << 21
#: Kind of subwords -> the package that learns and applies them.
_PACKAGES = {"bpe": "subword-nmt", "sentencepiece": "sentencepiece"}
# Not an argument of `_number_text`: forked processes have it without its being sent to them.
_dictionary: Dictionary


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
    model = _learn(manifest, options, train_texts(texts.values()), lines["train"])
    _segment(manifest, model, list(texts.values()), lines, most)
    segmented = {name: f"subword/{Path(text).name}" for name, text in texts.items()}
    make_binary(manifest, segmented, dictionaries)


def train_texts(texts: Iterable[str]) -> list[str]:
    """Those of the train split."""
    return [text for text in texts if Path(text).stem == "train"]


def _inputs(manifest: Manifest, texts: Iterable[str], *packages: str) -> dict[str, Any]:
    """What a step is made from: its texts, and the versions of some packages."""
    checksums = file_checksums(manifest.content)
    return {
        "inputs": {text: checksums[text] for text in texts},
        "versions": installed(packages),
    }


def _learn(
    manifest: Manifest, options: SubwordOptions, train: list[str], lines: int
) -> SubwordModel:
    """The subword model of the train texts, each of which has ``lines``: subword/."""
    kind, size = options.subword, options.vocab_size
    paths = [manifest.folder / text for text in train]
    name = f"subword/{MODEL_NAMES[kind]}"

    def action(work: Path) -> None:
        (work / "subword").mkdir()
        if kind == "sentencepiece":
            text = (line for path in paths for line in read_lines(path) if line)
            subword.learn_sentencepiece(text, len(paths) * lines, size, work / name)
        else:
            words = subword.count_words(paths, manifest.workers)
            subword.learn_bpe_model(words, size, work / name)

    made_from = {**_inputs(manifest, train, _PACKAGES[kind]), "options": [kind, size]}
    manifest.run("learn", made_from, action, total=len(paths) * lines)
    return SubwordModel(kind, manifest.folder / name, file_checksums(manifest.content)[name])


def _segment(
    manifest: Manifest,
    model: SubwordModel,
    texts: list[str],
    lines: Mapping[str, int],
    most: int | None,
) -> None:
    """Clean texts in subwords: subword/."""
    paths = [manifest.folder / text for text in texts]
    total = sum(lines[path.stem] for path in paths)

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

    inputs = _inputs(manifest, texts, _PACKAGES[model.kind])
    made_from = {**inputs, "model": model.checksum, "most": most}
    manifest.run("segment", made_from, action, total)


def make_binary(
    manifest: Manifest, texts: Mapping[str, str], dictionaries: Iterable[str]
) -> None:
    """The step from subword/ to bin/.

    Args:
        manifest: that of the data folder, after its step "segment".
        texts: fairseq's name of each text -> its file in the data folder (subword/train.en).
        dictionaries: names of the dictionary's files; its words are those of the train texts.
    """

    def action(work: Path) -> Counts:
        fairseq_mhe.register()
        from fairseq.data import Dictionary

        (work / "bin").mkdir()
        dictionary = Dictionary()
        train = [manifest.folder / text for text in train_texts(texts.values())]
        for word, count in subword.count_words(train, manifest.workers).items():
            dictionary.add_symbol(word, count)
        dictionary.finalize()
        for name in dictionaries:
            dictionary.save(str(work / "bin" / name))
        log = f"{len(dictionary)} types\n"
        for name, text in texts.items():
            prefix = work / "bin" / name
            log += binarise(dictionary, manifest.folder / text, prefix, manifest.workers)
        write_text(manifest.folder / "logs" / "binarise.log", log)
        return {"dictionary": len(dictionary) - dictionary.nspecial}

    inputs = _inputs(manifest, texts.values(), "ve-fairseq", "fairseq")
    made_from = {**inputs, "names": list(texts)}  # which the direction of translation decides
    manifest.run("binarise", made_from, action, len(texts))


def binarise(dictionary: Dictionary, text: Path, prefix: Path, workers: int = 1) -> str:
    """Write a text in subwords as PREFIX.bin, its numbers, and PREFIX.idx, its lines' lengths.

    Returns:
        A line on how many lines, tokens and unknown tokens there are.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    global _dictionary
    _dictionary = dictionary
    dtype = best_fitting_int_dtype(len(dictionary))
    number = partial(_number_text, dtype=dtype)
    pieces = text_pieces(text, BINARY_BYTES)
    lengths: list[int] = []
    unknown = 0
    with Path(f"{prefix}.bin").open("wb") as data:
        for numbers, line_lengths in ordered_map(number, pieces, workers):
            data.write(numbers.tobytes())
            lengths += line_lengths
            unknown += int(np.count_nonzero(numbers == dictionary.unk()))
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(lengths)
    return f"{text.name}: {len(lengths)} lines, {sum(lengths)} tokens, {unknown} unknown\n"


def _number_text(piece: Piece, dtype: type[np.integer[Any]]) -> tuple[Numbers, list[int]]:
    """The numbers of whole lines one after another, and how many each line has."""
    known, unknown, end = _dictionary.indices, _dictionary.unk(), _dictionary.eos()
    numbers: list[int] = []
    lengths: list[int] = []
    for line in piece.lines():
        words = line.split()
        numbers.extend(map(known.get, words, repeat(unknown)))
        numbers.append(end)
        lengths.append(len(words) + 1)
    return np.array(numbers, dtype=dtype), lengths

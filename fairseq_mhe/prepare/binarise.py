"""The form that fairseq-train reads, with one dictionary for all languages.

It replaces fairseq-preprocess, which takes 7.5 times as long (CPU time, 200,000 lines); a test
compares all files with those of fairseq-preprocess.
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
from fairseq_mhe.prepare.manifest import Counts, Manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.subword import count_words
from fairseq_mhe.prepare.text import Piece, text_pieces, total_size

if TYPE_CHECKING:  # fairseq takes seconds to import
    from fairseq.data import Dictionary

    Numbers = np.ndarray[Any, np.dtype[Any]]

BLOCK_BYTES = 1 << 21
ROOM = 1.6  # bytes that a step writes for each byte that it reads, with some to spare
# Not an argument of `_number_text`: forked processes have it without its being sent to them.
_dictionary: Dictionary


def make_binary(
    manifest: Manifest, texts: Mapping[str, str], dictionaries: Iterable[str]
) -> None:
    """The step from subword/ to bin/.

    Args:
        manifest: that of the data folder, after its step "segment".
        texts: fairseq's name of each text -> its file in the data folder (subword/train.en).
        dictionaries: names of the dictionary's files; its words are those of the train texts.
    """
    paths = {name: manifest.folder / text for name, text in texts.items()}
    train = [path for path in paths.values() if path.stem == "train"]
    versions = manifest.content["versions"]
    made_from = {
        "inputs": manifest.checksums("segment", "subword/"),
        "names": list(texts),  # which the direction of translation decides
        "fairseq": versions.get("ve-fairseq") or versions.get("fairseq"),
    }

    def action(work: Path) -> Counts:
        fairseq_mhe.register()
        from fairseq.data import Dictionary

        (work / "bin").mkdir()
        dictionary = Dictionary()
        for word, count in count_words(train, manifest.workers).items():
            dictionary.add_symbol(word, count)
        dictionary.finalize()
        for name in dictionaries:
            dictionary.save(str(work / "bin" / name))
        log = [f"{len(dictionary)} types"]
        for name, path in paths.items():
            log.append(binarise_with(dictionary, path, work / "bin" / name, manifest.workers))
        write_text(
            manifest.folder / "logs" / "binarise.log", "".join(f"{line}\n" for line in log)
        )
        return {"dictionary": len(dictionary) - dictionary.nspecial}

    manifest.run("binarise", made_from, action, ROOM * total_size(paths.values()), len(texts))


def binarise_with(dictionary: Dictionary, text: Path, prefix: Path, workers: int = 1) -> str:
    """Write a text in subwords as PREFIX.bin, its numbers, and PREFIX.idx, its lines' lengths.

    Returns:
        How many lines, tokens and unknown tokens there are.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    global _dictionary
    _dictionary = dictionary
    dtype = best_fitting_int_dtype(len(dictionary))
    number = partial(_number_text, dtype=dtype)
    lengths: list[int] = []
    unknown = 0
    with Path(f"{prefix}.bin").open("wb") as data:
        for numbers, line_lengths in ordered_map(
            number, text_pieces(text, BLOCK_BYTES), workers
        ):
            data.write(numbers.tobytes())
            lengths += line_lengths
            unknown += int(np.count_nonzero(numbers == dictionary.unk()))
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(lengths)
    return f"{text.name}: {len(lengths)} lines, {sum(lengths)} tokens, {unknown} unknown"


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

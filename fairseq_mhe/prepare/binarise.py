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
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.subword import count_words
from fairseq_mhe.prepare.text import Piece, text_pieces

if TYPE_CHECKING:  # fairseq takes seconds to import
    from fairseq.data import Dictionary

    Numbers = np.ndarray[Any, np.dtype[Any]]

BLOCK_BYTES = 1 << 21
# Not an argument of `_number_text`: forked processes have it without its being sent to them.
_dictionary: Dictionary


def binarise(
    texts: Mapping[str, Path], dictionaries: Iterable[str], out: Path, workers: int, log: Path
) -> int:
    """Binarise ``texts`` in subwords (name of the result -> text) into the folder ``out``.

    The dictionary has the words of the texts called train, and is written under each of the names
    ``dictionaries``. ``log``: the file for how many lines, tokens and unknown tokens each text has.

    Returns:
        The words of the dictionary.
    """
    fairseq_mhe.register()
    from fairseq.data import Dictionary

    out.mkdir()
    dictionary = Dictionary()
    train = [text for text in texts.values() if text.stem == "train"]
    for word, count in count_words(train, workers).items():
        dictionary.add_symbol(word, count)
    dictionary.finalize()
    for name in dictionaries:
        dictionary.save(str(out / name))
    lines = [f"{len(dictionary)} types\n"]
    for name, text in texts.items():
        lines.append(f"{binarise_with(dictionary, text, out / name, workers)}\n")
    write_text(log, "".join(lines))
    return len(dictionary) - dictionary.nspecial


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
        for numbers, line_lengths in ordered_map(number, text_pieces(text, BLOCK_BYTES), workers):
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

"""fairseq-preprocess, its two slow functions exchanged for ones that write the same bytes some ten times faster.

``python -m fairseq_mhe.prepare.preprocess`` takes fairseq-preprocess's options. Counting the words
of a dictionary and turning words into numbers are here done for many lines at once, and by all
``--workers``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.binarizer import BinarizeSummary
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import (
    MMapIndexedDataset,
    best_fitting_int_dtype,
    data_file_path,
    index_file_path,
)
from fairseq_cli import preprocess

from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.text import text_blocks

BLOCK_BYTES = 1 << 21


def count_words(text: str, end: str) -> Counter[str]:
    """How often each word occurs, and the mark of a line's end."""
    words = Counter(text.split())
    words[end] += text.count("\n") + (not text.endswith("\n"))
    return words


def add_file_to_dictionary(
    filename: str, dictionary: Dictionary, tokenize: Callable[[str], list[str]], num_workers: int
) -> None:
    """As `Dictionary.add_file_to_dictionary`, for words that stand between spaces."""
    count = partial(count_words, end=dictionary.eos_word)
    for words in ordered_map(count, text_blocks(Path(filename), BLOCK_BYTES), num_workers):
        for word, number in sorted(words.items()):
            dictionary.add_symbol(word, number)


class Numbers(dict[str, int]):
    """Word -> number in the dictionary; what is not there is counted and has the number of the unknown word."""

    def __init__(self, dictionary: Dictionary) -> None:
        """A copy of the dictionary's."""
        super().__init__(dictionary.indices)
        self.unknown: Counter[str] = Counter()
        self._unknown_number = dictionary.unk()
        self.end = dictionary.eos()

    def __missing__(self, word: str) -> int:
        self.unknown[word] += 1
        return self._unknown_number


@dataclass(frozen=True)
class NumberedText:
    """Lines as numbers one after another, each line with the end's number; how long each is; and unknown words."""

    numbers: bytes
    lengths: list[int]
    unknown: Counter[str]


def number_text(text: str, dtype: type[np.integer[Any]]) -> NumberedText:
    """Turn whole lines into numbers of `_numbers`."""
    _numbers.unknown.clear()
    found: list[int] = []
    lengths: list[int] = []
    for line in text.removesuffix("\n").split("\n"):
        words = line.split()
        found.extend(map(_numbers.__getitem__, words))
        found.append(_numbers.end)
        lengths.append(len(words) + 1)
    return NumberedText(np.array(found, dtype=dtype).tobytes(), lengths, Counter(_numbers.unknown))


# The dictionary in use. Not an argument: forked processes have it without its being sent to them
# with each text.
_numbers: Numbers


class FileBinarizer:
    """In the place of fairseq's class of this name; for lines of words, as fairseq-preprocess asks for by default."""

    @staticmethod
    def multiprocess_dataset(
        input_file: str,
        dataset_impl: str,
        binarizer: Any,
        output_prefix: str,
        vocab_size: int,
        num_workers: int = 1,
    ) -> BinarizeSummary:
        """Write OUTPUT_PREFIX.bin and .idx."""
        global _numbers
        _numbers = Numbers(binarizer.dict)
        dtype = best_fitting_int_dtype(vocab_size)
        lengths: list[int] = []
        unknown: Counter[str] = Counter()
        with Path(data_file_path(output_prefix)).open("wb") as data:
            texts = text_blocks(Path(input_file), BLOCK_BYTES)
            for numbered in ordered_map(partial(number_text, dtype=dtype), texts, num_workers):
                data.write(numbered.numbers)
                lengths += numbered.lengths
                unknown.update(numbered.unknown)
        with MMapIndexedDataset.Index.writer(index_file_path(output_prefix), dtype) as index:
            index.write(lengths)
        return BinarizeSummary(num_seq=len(lengths), replaced=unknown, num_tok=sum(lengths))


def main() -> None:
    """fairseq-preprocess's command, faster."""
    preprocess.FileBinarizer = FileBinarizer
    Dictionary.add_file_to_dictionary = staticmethod(add_file_to_dictionary)
    preprocess.cli_main()


if __name__ == "__main__":
    main()

"""Which characters of a text each of its subwords stands for."""

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from fairseq_mhe.prepare.subword import NOT_LAST, WORD_START
from fairseq_mhe.prepare.text_processing import TextProcessing

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Aligned:
    """Subwords, and the first character of each and the one after its last."""

    subwords: list[str]
    begins: list[int]
    ends: list[int]

    def covering(self, begin: int, end: int) -> tuple[int, int]:
        """The first subword of a stretch of characters, and its last."""
        first = min(bisect_right(self.ends, begin), len(self.ends) - 1)
        return first, max(first, bisect_left(self.begins, end) - 1)


def aligned(processing: TextProcessing, text: str) -> Aligned:
    """The subwords of a text: those that `TextProcessing.segment` gives it as a whole.

    Subwords do not cross white space, so that each word is divided by itself. Where normalising has
    changed a word's length, all its subwords stand for the whole word.
    """
    words = list(_WORD.finditer(text))
    result = Aligned([], [], [])
    divided = processing.segment([word[0] for word in words])
    for word, pieces in zip(words, map(str.split, divided), strict=True):
        lengths = [
            len(piece.removeprefix(WORD_START).removesuffix(NOT_LAST)) for piece in pieces
        ]
        exact = sum(lengths) == word.end() - word.start()
        begin = word.start()
        for piece, length in zip(pieces, lengths, strict=True):
            result.subwords.append(piece)
            result.begins.append(begin if exact else word.start())
            begin += length
            result.ends.append(begin if exact else word.end())
    return result

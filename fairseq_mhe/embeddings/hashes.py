"""Hashes of words: 128 bits each and a row of 50,260, the same in every process and machine.

Both are HashFormers' (Xue & Aletras 2022, arXiv 2210.07904, and its published code):

- ``md5``, a message digest: HMAC-MD5 with the key "en"; the row is the digest mod 50,260. Words
  that differ in a letter have nothing in common.
- ``lsh``, locality-sensitive: words with common parts have common bits. With features f of a word
  and their weights w_f, bit j is [sum_f w_f r_f,j > 0], r_f in R^128 Gaussian (random hyperplanes,
  Charikar 2002), and the row is argmax s, s_i = sum_f w_f g[(id_f + i) mod 50,260] for the first
  25,130 of i and its negative for the others, with one Gaussian g in R^50,260 (a cross-polytope
  behind a circulant rotation, Andoni et al. 2015).

The published lsh takes the pieces of RoBERTa's byte-pair encoding as features and their numbers in
its dictionary as seeds, files that are no part of fairseq. Here features are a word's character
trigrams, a space before and after it (those of MultiHashFormer, arXiv 2606.28057), w_f says how
often, and id_f is the trigram's md5. Python's own ``hash`` differs from process to process and is
in neither.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fairseq.data import Dictionary

BITS = 128
#: Rows that words share, and the numbers before them: <s>, <pad>, </s>, <unk> and <mask>.
ROWS = 50_260
SPECIAL = 5
MASK = "<mask>"
DEFAULT_HASH = "md5"

_KEY = b"en"
#: How many trigrams a process remembers the vectors of.
_FEATURES = 1 << 15


class Hash:
    """One kind of hash, computed once a word: a process remembers all that it was asked."""

    def __init__(self, name: str, bits: Callable[[str], bytes], row: Callable[[str], int]) -> None:
        self.name = name
        self._compute_bits, self._compute_row = bits, row
        self._bits: dict[str, bytes] = {}
        self._rows: dict[str, int] = {}

    def bits(self, word: str) -> bytes:
        """16 bytes; the first of the 128 bits is the highest of the first byte."""
        if word not in self._bits:
            self._bits[word] = self._compute_bits(word)
        return self._bits[word]

    def row(self, word: str) -> int:
        """A number below ``ROWS``."""
        if word not in self._rows:
            self._rows[word] = self._compute_row(word)
        return self._rows[word]

    def remember(self, word: str, bits: bytes, row: int) -> None:
        """Take what was computed before."""
        self._bits[word], self._rows[word] = bits, row


def _digest(word: str) -> bytes:
    return hmac.digest(_KEY, word.encode(), "md5")


def _digest_row(word: str) -> int:
    return int.from_bytes(_digest(word), "big") % ROWS


def trigrams(word: str) -> Counter[str]:
    """A word's features and how often it has each: of "aaa" " aa", "aaa" and "aa "."""
    padded = f" {word} "
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))


@lru_cache(_FEATURES)
def _directions(feature: str) -> NDArray[np.float64]:
    """r_f (128,), from the generator of numpy whose numbers are promised to stay the same."""
    seed = int.from_bytes(_digest(feature)[:4], "big")
    return np.random.RandomState(seed).standard_normal(BITS)


@cache
def _circulant() -> NDArray[np.float64]:
    """g twice, one after the other, so that every rotation of it is a slice: (2 * ROWS,)."""
    return np.tile(np.random.RandomState(42).standard_normal(ROWS), 2)


def _near_bits(word: str) -> bytes:
    total = np.zeros(BITS)
    for feature, count in sorted(trigrams(word).items()):
        total += count * _directions(feature)
    return np.packbits(total > 0).tobytes()


def _near_row(word: str) -> int:
    half, rotated = ROWS // 2, _circulant()
    total = np.zeros(half)
    for feature, count in sorted(trigrams(word).items()):
        start = _digest_row(feature)
        total += count * rotated[start : start + half]
    best = int(np.abs(total).argmax())
    return best if total[best] > 0 else best + half


HASHES = {"md5": Hash("md5", _digest, _digest_row), "lsh": Hash("lsh", _near_bits, _near_row)}


def hash_of(name: str) -> Hash:
    """The hash ``name``.

    Raises:
        ValueError: there is none of that name; the message lists those that are.
    """
    if name not in HASHES:
        raise ValueError(f"unknown hash {name!r}; choose one of: {', '.join(HASHES)}")
    return HASHES[name]


@dataclass(frozen=True)
class WordHashes:
    """The hashes of a dictionary's V entries, whatever they are: words, or subwords.

    ``symbols``: (V,), 0 to 4 of the special symbols and ``SPECIAL`` of every word; ``words``: the
    entries. Special symbols have no hash: zeros.
    """

    hash: Hash
    words: Sequence[str]
    symbols: NDArray[np.int64]

    def bits(self) -> NDArray[np.bool_]:
        """(V, 128)."""
        packed = np.zeros((len(self.words), BITS // 8), np.uint8)
        for index in np.flatnonzero(self.symbols == SPECIAL).tolist():
            packed[index] = np.frombuffer(self.hash.bits(self.words[index]), np.uint8)
        return np.unpackbits(packed, axis=1).astype(np.bool_)

    def rows(self) -> NDArray[np.int64]:
        """(V,): special symbols keep their numbers, words have theirs from ``SPECIAL`` on."""
        found = self.symbols.copy()
        for index in np.flatnonzero(self.symbols == SPECIAL).tolist():
            found[index] = SPECIAL + self.hash.row(self.words[index])
        return found


def hashes_of(dictionary: Dictionary, name: str) -> WordHashes:
    """The hashes of a dictionary.

    Raises:
        ValueError: there is no such hash.
    """
    words = dictionary.symbols
    symbols = np.full(len(words), SPECIAL)
    symbols[: dictionary.nspecial] = np.arange(dictionary.nspecial)
    symbols[[index for index, word in enumerate(words) if word == MASK]] = SPECIAL - 1
    return WordHashes(hash_of(name), words, symbols)

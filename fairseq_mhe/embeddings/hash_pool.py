"""The bits of a hash in 13 pieces, a row of a small table each, pooled by learnt weights.

e(w) = sum_{k=1..13} E[i_k] * softmax_k(A)[k], channel by channel: i_k = 1 + the number that bits
10 (k - 1) to 10 k - 1 of 128 are (the last piece has 8), E in R^{1025 x C}, A in R^{13 x C},
softmax over the 13. Dropout on the E[i_k]. HashFormers' Pool (Xue & Aletras 2022, arXiv 2210.07904;
``conj`` in its code). Parameters: 1025 C + 13 C.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fairseq_mhe.embeddings.base import HashedEmbedding
from fairseq_mhe.embeddings.hashes import BITS, WordHashes

#: Bits of a piece, and how many pieces there are.
_WIDTH = 10
_PIECES = -(-BITS // _WIDTH)


class HashPool(HashedEmbedding):
    """Row 0 of E, the published code's for special symbols, is 0 and stays it."""

    pieces: Tensor

    def make(self) -> None:
        """E and A."""
        super().make()
        self.rows = self.drawn(1 + 2**_WIDTH, self.embedding_dim)
        self.rows.data[0] = 0
        self.mixing = self.drawn(_PIECES, self.embedding_dim, std=0.02)

    def looked_up(self, hashes: WordHashes) -> dict[str, NDArray[Any]]:
        """i of every entry, (V, 13)."""
        return {**super().looked_up(hashes), "pieces": _numbers(hashes.bits()) + 1}

    def of_words(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)."""
        found = F.embedding(self.pieces[tokens], self.rows, 0)  # (B, T, 13, C)
        found = F.dropout(found, self.dropout, self.training)
        return (found * self.mixing.softmax(dim=0)).sum(dim=-2)


def _numbers(bits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(V, 128) -> (V, 13): each piece as a number, its first bit the highest."""
    found = np.zeros((len(bits), _PIECES), np.int64)
    for bit in range(BITS):
        found[:, bit // _WIDTH] = 2 * found[:, bit // _WIDTH] + bits[:, bit]
    return found

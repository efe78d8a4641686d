"""The sum of 128 vectors, for each bit of a hash one of two.

e(w) = (W_1 b + W_0 (1 - b)) / sqrt(128), b in {0, 1}^128 the hash of w, W_1, W_0 in R^{C x 128}
without biases; dropout on W_1 and W_0. HashFormers' Add (Xue & Aletras 2022, arXiv 2210.07904;
``de`` in its code). Parameters: 256 C.
"""

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fairseq_mhe.embeddings.base import HashedEmbedding
from fairseq_mhe.embeddings.hashes import BITS, WordHashes


class HashAdd(HashedEmbedding):
    """W_1 and W_0 side by side are one product."""

    work = 2 * BITS
    bits: Tensor

    def make(self) -> None:
        """W_1 and W_0."""
        super().make()
        self.ones = self.drawn(self.embedding_dim, BITS)
        self.zeros = self.drawn(self.embedding_dim, BITS)

    def looked_up(self, hashes: WordHashes) -> dict[str, NDArray[Any]]:
        """b of every entry, (V, 128)."""
        return {**super().looked_up(hashes), "bits": hashes.bits()}

    def of_words(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)."""
        both = torch.cat((self.ones, self.zeros), dim=1)  # (C, 256)
        both = F.dropout(both, self.dropout, self.training)
        bits = self.bits[tokens]  # (B, T, 128)
        chosen = torch.cat((bits, ~bits), dim=-1).to(both.dtype)  # (B, T, 256)
        return F.linear(chosen, both) / math.sqrt(BITS)

"""How a hash correlates with C learnt directions.

e_j(w) = Pearson's correlation of b with row j of W: (b - mean b) . (W_j - mean W_j) / (|b - mean b|
|W_j - mean W_j|), each norm 1e-8 at least; b in {0, 1}^128 the hash of w, W in R^{C x 128}.
HashFormers' Proj (Xue & Aletras 2022, arXiv 2210.07904; ``pcc`` in its code). Parameters: 128 C;
with s_5, the one vector that all words have in common, the abstract's 99.1 thousand at C = 768.
"""

from typing import Any

from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fairseq_mhe.embeddings.base import HashedEmbedding
from fairseq_mhe.embeddings.hashes import BITS, WordHashes

_LEAST = 1e-8


class HashProj(HashedEmbedding):
    """The length of a direction says nothing; nothing is dropped."""

    work = BITS
    bits: Tensor

    def make(self) -> None:
        """W."""
        super().make()
        self.directions = self.drawn(self.embedding_dim, BITS)

    def looked_up(self, hashes: WordHashes) -> dict[str, NDArray[Any]]:
        """b of every entry, (V, 128)."""
        return {**super().looked_up(hashes), "bits": hashes.bits()}

    def of_words(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)."""
        bits = self.bits[tokens].to(self.directions.dtype)  # (B, T, 128)
        return F.linear(_standard(bits), _standard(self.directions))


def _standard(x: Tensor) -> Tensor:
    """(..., 128) with mean 0 and length 1, in float32: float16 has no number as small as `_LEAST`,
    and the bits of what is no word are all the same.
    """
    full = x.float()
    return F.normalize(full - full.mean(dim=-1, keepdim=True), dim=-1, eps=_LEAST).to(x.dtype)

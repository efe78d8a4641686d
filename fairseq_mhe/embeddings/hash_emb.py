"""A table of 50,265 rows, of which the hash of a word names one.

e(w) = E[h(w)], E in R^{50,265 x C}, h(w) = 5 + the hash's row, special symbols 0 to 4. HashFormers'
Emb (Xue & Aletras 2022, arXiv 2210.07904; ``ori`` in its code). Words of one row are one word to
the model. Parameters: 50,265 C.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairseq_mhe.embeddings.base import PAD, HashedEmbedding
from fairseq_mhe.embeddings.hashes import ROWS, SPECIAL, WordHashes


class HashEmb(HashedEmbedding):
    """Special symbols have rows of the table, so that there are no vectors s."""

    has_rows = True
    rows: Tensor

    def make(self) -> None:
        """E."""
        self.table = nn.Embedding(SPECIAL + ROWS, self.embedding_dim, PAD)
        nn.init.normal_(self.table.weight, std=self.std)
        with torch.no_grad():
            self.table.weight[PAD] = 0

    @property
    def weight(self) -> Tensor:
        """E, (50,265, C)."""
        return self.table.weight

    def looked_up(self, hashes: WordHashes) -> dict[str, NDArray[Any]]:
        """h of every entry, (V,)."""
        return {**super().looked_up(hashes), "rows": hashes.rows()}

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)."""
        return self.table(self.rows[tokens])

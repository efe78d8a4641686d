"""What every hashed embedding has: special symbols of its own, and a place in fairseq's encoder."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.embeddings.hashes import SPECIAL, WordHashes

PAD = 1
_PART = 1024  # entries of a dictionary that are embedded at once


class HashedEmbedding(nn.Module):
    """e(word) = of_words(its hash) + s_5; e(special symbol k) = s_k, k from 0 to 4.

    V entries of a dictionary, C ``embed_dim``. No parameter belongs to a word: the hashes of a
    dictionary are buffers that no checkpoint holds, so that a trained embedding takes any
    dictionary (:meth:`know`). The six vectors s in R^C are HashFormers' table of token types
    (Xue & Aletras 2022, published code), 6 C parameters beside those of the kind.

    Args:
        hashes: of the dictionary.
        embed_dim: C.
        std: spread of the initial values, a normal distribution cut off at twice that, but for
            `HashEmb`'s, which is not.
        dropout: probability with which a kind drops what it says it drops, in training.
    """

    #: Multiply-adds of a token, in units of C.
    work = 0
    #: Whether it has a row for every hash, which an output can be tied to.
    has_rows = False
    padding_idx = PAD

    symbols: Tensor

    def __init__(
        self, hashes: WordHashes, embed_dim: int, std: float = 0.02, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding_dim, self.std, self.dropout = embed_dim, std, dropout
        self.hash = hashes.hash.name
        self.make()
        self.know(hashes)

    def make(self) -> None:
        """The parameters: s here, and a kind's own."""
        self.special = self.drawn(SPECIAL + 1, self.embedding_dim)  # s
        with torch.no_grad():
            self.special[PAD] = 0

    def drawn(self, *shape: int, std: float | None = None) -> nn.Parameter:
        """A parameter as HashFormers starts its own."""
        std = self.std if std is None else std
        return nn.Parameter(
            nn.init.trunc_normal_(torch.empty(shape), std=std, a=-2 * std, b=2 * std)
        )

    @property
    def weight(self) -> Tensor | None:
        """What fairseq ties a masked model's output to."""
        return None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.parameters()).device

    def know(self, hashes: WordHashes) -> None:
        """Take another dictionary, of the same hash."""
        if self.device.type == "meta":  # for counting: nothing is looked up
            return
        for name, values in self.looked_up(hashes).items():
            # Beside the parameters, and out of checkpoints.
            self.register_buffer(name, torch.from_numpy(values).to(self.device), persistent=False)

    def looked_up(self, hashes: WordHashes) -> dict[str, NDArray[Any]]:
        """Buffer -> an array of the V entries, of which ``forward`` picks those it is given."""
        return {"symbols": hashes.symbols}

    def of_words(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C), where tokens are words; anything finite where they are not."""
        raise NotImplementedError

    @torch.no_grad()
    def of_all(self) -> Tensor:
        """Of all entries of the dictionary, without dropout: (V, C)."""
        dropout, self.dropout = self.dropout, 0.0
        entries = torch.arange(len(self.symbols), device=self.device)
        try:
            # In parts: on the way a kind may need many times the room of what it gives.
            return torch.cat([self(part) for part in entries.split(_PART)])
        finally:
            self.dropout = dropout

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)."""
        symbols = self.symbols[tokens]  # (B, T)
        is_word = symbols.eq(SPECIAL).unsqueeze(-1)  # (B, T, 1)
        return F.embedding(symbols, self.special, PAD) + self.of_words(tokens) * is_word

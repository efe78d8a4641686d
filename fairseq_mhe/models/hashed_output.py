"""An output tied to a hashed embedding, and tables in the places of both before generation."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.embeddings import HashedEmbedding


class HashedOutput(nn.Module):
    """Scores of the V words of a dictionary: x -> (x . e(w_1), ..., x . e(w_V)).

    It has no parameters: e is the decoder's embedding.
    """

    def __init__(self, embedding: HashedEmbedding) -> None:
        super().__init__()
        self._embedding = (embedding,)  # out of sight: it is the decoder's already

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., V)."""
        return F.linear(x, self._embedding[0].of_all())


@torch.no_grad()
def look_up_from_now_on(model: Any) -> None:
    """Put a table of what it computes in the place of a translation model's hashed embedding."""
    hashed = model.encoder.embed_tokens
    if not isinstance(hashed, HashedEmbedding):
        return
    table = nn.Embedding.from_pretrained(hashed.of_all(), padding_idx=hashed.padding_idx)
    model.encoder.embed_tokens = table
    if model.decoder.embed_tokens is hashed:
        model.decoder.embed_tokens = table
        output = nn.Linear(table.embedding_dim, table.num_embeddings, bias=False, device="meta")
        output.weight = table.weight  # (V, C)
        model.decoder.output_projection = output

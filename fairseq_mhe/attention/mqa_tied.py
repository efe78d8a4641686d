"""Multi-query attention whose queries are read through the transposed output projection.

q_i = ((X * g) W_O^T)_i * e_i: block i of W_O, through which head i writes, is what it reads with;
g in R^C, random signs at the start, so that it reads in another subspace than it writes in, and one
embedding e_i in R^d a head. Head i: softmax(q_i (Y W_K)^T / sqrt(d)) Y W_V; output concat(heads)
W_O. With ``mqa_tied_skv`` keys are values too: W_K = W_V. Embeddings have been tied to the output
projection before (Press & Wolf 2017); tying queries to it is this project's own.
Parameters without biases: n d C + kdim d + vdim d + C + n d; of ``mqa_tied_skv``, whose keys are
values, one kdim d less.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.base import split_heads
from fairseq_mhe.attention.composed import ComposedQueryAttention, random_signs
from fairseq_mhe.attention.fitting import Parameters, means
from fairseq_mhe.attention.heads import Heads, Projection, projected
from fairseq_mhe.attention.mqa_skv import joined
from fairseq_mhe.attention.sublayer import PACKED_GAIN

#: How often its two scales are fitted to the other, in turns.
_TURNS = 5


class TiedQueryAttention(ComposedQueryAttention):
    """W_O serves twice; with ``bias`` queries have one of their own."""

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        self.key_heads = self.value_heads = 1
        self.make_kept()
        self.out_proj = self.output_linear()
        self.input_scale = random_signs(embed_dim)  # (C,), g
        # W_O starts without the gain that a query projection starts with.
        self.query_scale = nn.Parameter(torch.full((num_heads, self.head_dim), PACKED_GAIN))  # e_i
        self.query_bias: nn.Parameter | None = None  # (n, d)
        if self.bias:
            self.query_bias = nn.Parameter(torch.zeros(num_heads, self.head_dim))

    def make_kept(self) -> None:
        """The projections of what is kept."""
        self.k_proj = self.input_linear(self.kdim, self.head_dim)
        self.v_proj = self.input_linear(self.vdim, self.head_dim)

    def composed(self) -> tuple[Tensor, Tensor | None]:
        """(n, d, C), (n, d): W_O's blocks, scaled on both sides."""
        blocks = self.out_proj.weight.T.unflatten(0, (self.num_heads, -1))  # (n, d, C)
        return blocks * self.query_scale.unsqueeze(2) * self.input_scale, self.query_bias

    def pooled(self, heads: Heads) -> Parameters:
        """Means of keys and values, and the scales that bring W_O's blocks closest to queries."""
        parameters = means(self, heads)
        heads = heads.of_width(self.head_dim)
        blocks = heads.output.transpose(1, 2)  # (n, d, C)
        of_input, of_query = _scales(heads.query, blocks)
        parameters |= {"input_scale": of_input, "query_scale": of_query}
        found = {name: x for name, x in parameters.items() if not name.startswith("q_proj")}
        return {**found, "query_bias": heads.query_bias} if self.bias else found


def _scales(query: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """g (C,) and e (n, d) with e_i blocks_i g near to queries (n, d, C): each by turns."""
    of_input, of_query = query.new_ones(query.size(2)), query.new_ones(query.shape[:2])
    for _ in range(_TURNS):
        scaled = blocks * of_input
        of_query = _ratio((query * scaled).sum(dim=2), scaled.square().sum(dim=2))
        scaled = blocks * of_query.unsqueeze(2)
        of_input = _ratio((query * scaled).sum(dim=(0, 1)), scaled.square().sum(dim=(0, 1)))
    return of_input, of_query


def _ratio(one: Tensor, other: Tensor) -> Tensor:
    return torch.where(other > 0, one / other, 0.0)


class TiedQuerySharedKeyValueAttention(TiedQueryAttention):
    """The same, and the one key head is the value head."""

    keys_are_values = True

    def make_kept(self) -> None:
        """One projection, of what is key and value."""
        self.check_one_input()
        self.kv_proj = self.input_linear(self.kdim, self.head_dim)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one (B, 1, S, d), as both; ``value`` is the same input."""
        shared = split_heads(self.kv_proj(key), 1)
        return shared, shared

    def pooled(self, heads: Heads) -> Parameters:
        """The same; the one state is the mean of all keys and values."""
        return joined(super().pooled(heads))

    def kept_weights(self) -> tuple[Tensor, Tensor]:
        """The one, twice."""
        return self.kv_proj.weight, self.kv_proj.weight

    def kept_projections(self) -> tuple[Projection, Projection]:
        """The shared one, twice."""
        shared = projected(self.kv_proj, 1, self.num_heads)
        return shared, shared

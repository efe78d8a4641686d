"""Multi-head latent attention: DeepSeek-V2, 2024, section 2.1 (arXiv 2405.04434).

It is theirs without rotary positions, and without the norm that their models have after c.

Positions are compressed to c = Y W_D of r numbers, which is all that is cached; head i has K_i = c
W_UK^i and V_i = c W_UV^i: softmax(X W_Q^i K_i^T / sqrt(d)) V_i; output concat(heads) W_O.
Parameters without biases: 2 C n d + kdim r + 2 r n d; with r = 2 d and n d = C: 2 C^2 + 6 C d.

K_i and V_i are never computed: X W_Q^i (c W_UK^i)^T = (X W_Q^i W_UK^i^T) c^T, and W (c W_UV^i) =
(W c) W_UV^i: one kept head of width r, keys and values in one, serves all heads. The paper's
equation is ``mla`` in tests/attention/equations.py.
"""

import torch
from torch import Tensor

from fairseq_mhe.attention.base import Attention, Option, join_heads, split_heads
from fairseq_mhe.attention.written_out import Projection, WrittenOut, head_projections

_LATENT = (
    "numbers cached for a position, from which all heads' keys and values are made (default: 2 x "
    "width of a head)"
)


class LatentAttention(Attention):
    """Keys and values of all heads from one latent vector a position.

    r is 2 d unless given, as one key and one value head. With ``bias``, queries, latent vectors and
    output have one: softmax ignores a key's, and a value's is a part of the output's.
    """

    OPTIONS = (*Attention.OPTIONS, Option("attention_latent_dim", _LATENT))
    keys_are_values = True
    linear_heads = False
    latent_dim: int

    def build(self) -> None:
        if self.latent_dim is None:
            self.latent_dim = 2 * self.head_dim
        width = self.num_heads * self.head_dim
        self.down_proj = self.input_linear(self.kdim, self.latent_dim)  # (r, kdim), W_D
        self.k_up_proj = self.linear(self.latent_dim, width, bias=False)  # (n d, r), W_UK
        self.v_up_proj = self.linear(self.latent_dim, width, bias=False)  # (n d, r), W_UV
        self.q_proj = self.input_linear(self.embed_dim, width)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, r): X W_Q^i W_UK^i^T."""
        queries = split_heads(self.q_proj(x), self.num_heads)  # (B, n, T, d)
        up = self.k_up_proj.weight.unflatten(0, (self.num_heads, -1))  # (n, d, r)
        return head_by_head(queries, up)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one (B, 1, S, r), as both; ``value`` is the same input."""
        latent = self.down_proj(key).transpose(0, 1).unsqueeze(1)
        return latent, latent

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, n, T, r) -> (T, B, C): each head through W_UV^i, then W_O."""
        up = self.v_up_proj.weight.unflatten(0, (self.num_heads, -1))  # (n, d, r)
        values = head_by_head(heads, up.transpose(1, 2))  # (B, n, T, d)
        return self.out_proj(join_heads(values))

    def written_out(self) -> WrittenOut:
        """Keys and values are products of the compression and their own projection."""
        down, bias = head_projections(self.down_proj, 1)  # (1, r, M), (1, r)

        def through(up: Projection) -> Projection:
            weight, _ = up  # (n, d, r)
            return weight @ down, (weight @ bias.unsqueeze(2)).squeeze(2)

        query = head_projections(self.q_proj, self.num_heads)
        key = head_projections(self.k_up_proj, self.num_heads)
        value = head_projections(self.v_up_proj, self.num_heads)
        return WrittenOut.of(self, query, through(key), through(value))


def head_by_head(x: Tensor, weights: Tensor) -> Tensor:
    """(B, n, T, a) by a matrix a head, (n, a, b) -> (B, n, T, b)."""
    batch, heads, length, width = x.shape
    rows = x.transpose(0, 1).reshape(heads, batch * length, width)  # (n, B T, a)
    products = torch.bmm(rows, weights)  # (n, B T, b)
    return products.unflatten(1, (batch, length)).transpose(0, 1)

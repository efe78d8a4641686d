"""Multi-head latent attention (MLA): DeepSeek-V2 2024, section 2.1 (arXiv 2405.04434).

Each position has a latent vector c = Y W_D of r numbers, and the cache holds only c. Head i is
softmax(X W_Q^i K_i^T / sqrt(d)) V_i with K_i = c W_UK^i and V_i = c W_UV^i; the output is
concat(heads) W_O. We leave out rotary positions, and the norm that DeepSeek's models have after c.
Parameters without biases: 2 C n d + kdim r + 2 r n d; with r = 2 d and n d = C: 2 C^2 + 6 C d.

The code never computes K_i and V_i, since X W_Q^i (c W_UK^i)^T = (X W_Q^i W_UK^i^T) c^T and, for
attention weights A, A (c W_UV^i) = (A c) W_UV^i. So c is one key and value head of width r, shared
by all heads. ``equation`` is the paper's form.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import Attention, join_heads, split_heads
from fairseq_mhe.attention.equations import Result, affine, attend_heads, heads_of
from fairseq_mhe.attention.plain_heads import PlainHeads, Projection


class LatentAttention(Attention):
    """All heads compute keys and values from one latent vector for each position.

    The default r is 2 d, the size of one key and one value head. ``bias`` adds biases to queries,
    latent vectors and output: softmax ignores a key's bias, and the output's absorbs a value's.
    """

    OPTIONS = (*Attention.OPTIONS, options.LATENT_DIM)
    keys_are_values = True
    linear_heads = False
    latent_dim: int

    def build(self) -> None:
        width = self.all_heads_dim
        self.down_proj = self.input_linear(self.kdim, self.latent_dim)  # (r, kdim), W_D
        self.k_up_proj = self.linear(self.latent_dim, width, bias=False)  # (n d, r), W_UK
        self.v_up_proj = self.linear(self.latent_dim, width, bias=False)  # (n d, r), W_UV
        self.q_proj = self.input_linear(self.embed_dim, width)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, r): X W_Q^i W_UK^i^T."""
        queries = split_heads(self.q_proj(x), self.num_heads)  # (B, n, T, d)
        up = self.k_up_proj.weight.unflatten(0, (self.num_heads, -1))  # (n, d, r)
        return torch.einsum("bntd,ndr->bntr", queries, up)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one tensor (B, 1, S, r) for both; ``value`` equals ``key``."""
        latent = split_heads(self.down_proj(key), 1)
        return latent, latent

    def merge(self, heads: Tensor) -> Tensor:
        """(B, n, T, r) -> (T, B, C): multiply head i by W_UV^i, then all heads by W_O."""
        up = self.v_up_proj.weight.unflatten(0, (self.num_heads, -1))  # (n, d, r)
        values = torch.einsum("bntr,ndr->bntd", heads, up)
        return self.out_proj(join_heads(values))

    def plain_heads(self) -> PlainHeads:
        """The latent vector is key and value; W_Q^i takes W_UK^i, and W_O takes W_UV^i."""
        latent = Projection.of(self.down_proj)
        key_up = Projection.of(self.k_up_proj, self.num_heads).weight  # (n, d, r)
        value_up = Projection.of(self.v_up_proj, self.num_heads).weight  # (n, d, r)
        query = Projection.of(self.q_proj, self.num_heads).then(key_up.transpose(1, 2))
        heads = PlainHeads.of(self, query, latent, latent)
        return replace(heads, output=heads.output @ value_up)  # (n, C, r)

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        latent = affine(self.down_proj, y)  # (S, B, r)
        queries = heads_of(self.q_proj, x, self.num_heads)
        keys = heads_of(self.k_up_proj, latent, self.num_heads)
        values = heads_of(self.v_up_proj, latent, self.num_heads)
        return attend_heads(queries, keys, values, mask, self.out_proj)

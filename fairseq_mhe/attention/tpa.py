"""Tensor product attention (TPA) of keys and values: Zhang et al. 2025 (arXiv 2501.06425).

At position s head i has the key K_i(s) = 1/R sum_r a_ir(s) b_r(s): R vectors b_r in R^d that all
heads share, weighed by numbers a_ir that are the head's own. Both are linear in Y. Values alike.
Head i is softmax(X W_Q^i K_i^T / sqrt(d)) V_i; the output is concat(heads) W_O. This is the paper's
form with plain queries (its section 3.4, "KV only"), without rotary positions.
Parameters without biases: 2 C n d + (kdim + vdim) R (n + d).

The cache holds a and b. The code never computes K_i and V_i: a score is sum_r a_ir (q_i b_r) / R.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import PACKED_GAIN, Attention, split_heads
from fairseq_mhe.attention.equations import Result, affine, attend_heads, heads_of
from fairseq_mhe.attention.fused import Attended, attend_scores


class TensorProductAttention(Attention):
    """Heads weigh R shared keys and R shared values of each position by numbers of their own."""

    OPTIONS = (*Attention.OPTIONS, options.TPA_RANK)
    not_foldable_because = "its keys and values are products of two projections"
    shared_projection_init = "head"
    tpa_rank: int

    def build(self) -> None:
        vectors, numbers = self.tpa_rank * self.head_dim, self.tpa_rank * self.num_heads
        self.k_proj = self.input_linear(self.kdim, vectors)  # b of the keys
        self.k_head_proj = self.linear(self.kdim, numbers)  # a of the keys
        self.v_proj = self.input_linear(self.vdim, vectors)
        self.v_head_proj = self.linear(self.vdim, numbers)
        self.q_proj = self.linear(self.embed_dim, self.all_heads_dim, PACKED_GAIN)
        self.out_proj = self.output_linear()

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, 1, S, R d + n R) twice: b and a of keys, of values."""
        keys = torch.cat((self.k_proj(key), self.k_head_proj(key)), dim=2)
        values = torch.cat((self.v_proj(value), self.v_head_proj(value)), dim=2)
        return split_heads(keys, 1), split_heads(values, 1)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> Attended:
        """Attend with queries (N, n, T, d) to keys and values (B, 1, S, R d + n R)."""
        query = query.unflatten(0, (len(key), -1))  # (B, N / B, n, T, d)
        vectors, numbers = self.factors(key)  # (B, R, S, d), (B, 1, n, 1, R, S)
        products = torch.einsum("bmntd,brsd->bmntrs", query, vectors) * numbers
        scores = products.sum(dim=4).flatten(0, 1) * (self.scaling / self.tpa_rank)

        def average(weights: Tensor) -> Tensor:
            """(N, n, T, S) -> (N, n, T, d)."""
            vectors, numbers = self.factors(value)
            parts = weights.unflatten(0, (len(key), -1)).unsqueeze(4) * numbers
            heads = torch.einsum("bmntrs,brsd->bmntd", parts, vectors) / self.tpa_rank
            return heads.flatten(0, 1)

        return attend_scores(scores, average, **options)

    def factors(self, cached: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, S, R d + n R) -> vectors (B, R, S, d) and numbers (B, 1, n, 1, R, S)."""
        rank, width = self.tpa_rank, self.tpa_rank * self.head_dim
        vectors = cached[:, 0, :, :width].unflatten(2, (rank, -1)).transpose(1, 2)
        numbers = cached[:, 0, :, width:].unflatten(2, (-1, rank)).permute(0, 2, 3, 1)
        return vectors, numbers[:, None, :, None]

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        def products(vectors: nn.Linear, numbers: nn.Linear) -> list[Tensor]:
            b = affine(vectors, y).unflatten(2, (self.tpa_rank, -1))  # (S, B, R, d)
            heads = heads_of(numbers, y, self.num_heads)  # (S, B, R) each
            return [(a.unsqueeze(3) * b).mean(dim=2) for a in heads]  # (S, B, d)

        queries = heads_of(self.q_proj, x, self.num_heads)
        keys = products(self.k_proj, self.k_head_proj)
        values = products(self.v_proj, self.v_head_proj)
        return attend_heads(queries, keys, values, mask, self.out_proj)

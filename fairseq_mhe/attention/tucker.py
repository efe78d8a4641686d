"""Tucker attention: Klein et al. 2026 (arXiv 2603.30033), without rotary positions.

The products W_Q^i W_K^i^T of all heads are one tensor (n, C, C) of Tucker ranks a, b and c: queries
X U and keys Y K, with U (C, b) and K (kdim, c), serve all heads, and head i has the matrix
M_i = sum_j u_ij C_j, with a shared matrices C_j (b, c). The products W_V^i W_O^i have the same
ranks: values Y V, with V (vdim, b), N_i = sum_j v_ij D_j (b, c) and O (c, C). Head i is
softmax(X U M_i (Y K)^T / sqrt(d)) Y V; the output is sum_i (head_i N_i) O.
Parameters without biases: 2 (n a + a b c) + C b + kdim c + vdim b + c C.

The defaults 4, d and d give the cache of MHE: one key and one value head of width d.
"""

import torch
from torch import Tensor

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import Attention, join_heads, split_heads
from fairseq_mhe.attention.equations import Result, affine, average, scores_of
from fairseq_mhe.attention.plain_heads import PlainHeads, Projection


class TuckerAttention(Attention):
    """All heads share queries, keys and values; each mixes shared matrices between them.

    The paper's initial weights could not be read. Here every head's queries and the output start
    with the variance that they have in ``mha``.
    """

    OPTIONS = (*Attention.OPTIONS, *options.TUCKER_RANKS)
    linear_heads = False
    one_key_value = True
    shared_projection_init = "head"
    tucker_head_rank: int  # a
    tucker_query_rank: int  # b
    tucker_key_rank: int  # c

    def build(self) -> None:
        a, b, c = self.tucker_head_rank, self.tucker_query_rank, self.tucker_key_rank
        self.q_proj = self.input_linear(self.embed_dim, b)
        self.k_proj = self.input_linear(self.kdim, c)
        self.v_proj = self.input_linear(self.vdim, b)
        self.score_weights = self.normal(self.num_heads, a, std=a**-0.5)  # (n, a), u
        self.score_matrices = self.normal(a, b, c, std=b**-0.5)  # (a, b, c), C_j
        self.output_weights = self.normal(self.num_heads, a, std=a**-0.5)  # (n, a), v
        self.output_matrices = self.normal(a, b, c, std=b**-0.5)  # (a, b, c), D_j
        # The output adds up n heads: Xavier's range of a matrix (C, n c) keeps its variance.
        gain = ((self.embed_dim + c) / (self.embed_dim + self.num_heads * c)) ** 0.5
        self.out_proj = self.output_linear(c, gain)

    def score_cores(self) -> Tensor:
        """Return M, (n, b, c): each head's sum of the shared matrices."""
        return torch.einsum("na,abc->nbc", self.score_weights, self.score_matrices)

    def output_cores(self) -> Tensor:
        """Return N, (n, b, c)."""
        return torch.einsum("na,abc->nbc", self.output_weights, self.output_matrices)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, c): X U M_i."""
        matrices = self.score_cores().transpose(0, 1).flatten(1)  # (b, n c)
        products = self.q_proj(x) @ matrices  # (T, B, n c)
        return split_heads(products, self.num_heads)

    def merge(self, heads: Tensor) -> Tensor:
        """(B, n, T, b) -> (T, B, C): sum_i (head_i N_i) O."""
        matrices = self.output_cores().flatten(0, 1)  # (n b, c)
        return self.out_proj(join_heads(heads) @ matrices)

    def plain_heads(self) -> PlainHeads:
        """Queries contain M_i and the output N_i; keys and values are the same for all heads."""
        query = Projection.of(self.q_proj).then(self.score_cores().transpose(1, 2))
        key, value = Projection.of(self.k_proj), Projection.of(self.v_proj)
        output = self.out_proj.weight @ self.output_cores().transpose(1, 2)  # (n, C, b)
        return PlainHeads.of(self, query, key, value, output)

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        q, k, v = affine(self.q_proj, x), affine(self.k_proj, y), affine(self.v_proj, y)
        m = torch.tensordot(self.score_weights, self.score_matrices, 1)  # (n, b, c)
        scores = scores_of([q @ m_i for m_i in m], [k], self.head_dim)
        heads, weights = average(scores, [v], mask)  # (T, B, n b)
        n = torch.tensordot(self.output_weights, self.output_matrices, 1)  # (n, b, c)
        return affine(self.out_proj, heads @ n.flatten(0, 1)), weights

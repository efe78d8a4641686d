"""Multi-matrix factorization attention (MFA): Hu et al., Findings of ACL 2025 (arXiv 2412.19255).

Multi-query attention whose queries have low rank: q_i = norm(X A) B_i with A (C, r), B_i (r, d) and
norm the root mean square norm. Head i is softmax(q_i (Y W_K)^T / sqrt(d)) Y W_V; the output is
concat(heads) W_O. B_i can contain the weights of the norm, so it has none. The paper widens heads
with the parameters that A saves (``--attention-head-dim``). We leave out rotary positions.
Parameters without biases: C r + r n d + kdim d + vdim d + n d C.
"""

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import rms_norm

from fairseq_mhe.attention import options
from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.equations import Result, affine, attend_heads, heads_of
from fairseq_mhe.attention.plain_heads import PlainHeads, Projection

NORM_EPS = 1e-6


class FactorizedQueryAttention(Attention):
    """Queries of rank r for each head; all heads read one key head and one value head."""

    OPTIONS = (*Attention.OPTIONS, options.QUERY_RANK, options.QUERY_NORM)
    not_foldable_because: str | None = (
        "its queries are normalised, which no projection does"
    )
    linear_heads = False
    one_key_value = True
    query_rank: int  # r
    query_norm: str

    def build(self) -> None:
        if self.query_norm == "none":
            self.not_foldable_because = None
        super().build()
        self.q_down_proj = self.input_linear(self.embed_dim, self.query_rank)  # A
        self.q_proj = self.linear(self.query_rank, self.all_heads_dim)  # B

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): norm(X A) B_i."""
        latent = self.q_down_proj(x)  # (T, B, r)
        if self.query_norm == "rms":
            latent = rms_norm(latent, (self.query_rank,), eps=NORM_EPS)
        return split_heads(self.q_proj(latent), self.num_heads)

    def plain_heads(self) -> PlainHeads:
        """Without the norm, A B_i is the projection of a head's queries."""
        heads = PlainHeads.of_projections(self)
        query = Projection.of(self.q_down_proj).then(heads.query)  # (n, d, C), (n, d)
        bias = query.bias + heads.query_bias
        return replace(heads, query=query.weight, query_bias=bias)

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        latent = affine(self.q_down_proj, x)  # (T, B, r)
        if self.query_norm == "rms":
            mean_square = latent.square().mean(dim=-1, keepdim=True)
            latent = latent / (mean_square + NORM_EPS).sqrt()
        queries = heads_of(self.q_proj, latent, self.num_heads)
        keys, values = [affine(self.k_proj, y)], [affine(self.v_proj, y)]
        return attend_heads(queries, keys, values, mask, self.out_proj)

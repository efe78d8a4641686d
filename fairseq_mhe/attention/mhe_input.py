"""MHE whose embeddings act on the input of the shared query, where MHE-Mul's act on its output.

q_i = (X * g_i) W_Q with one embedding g_i in R^C a head, random signs at the start, so that every
head reads other sums of the input; head i: softmax(q_i (Y W_K)^T / sqrt(d)) Y W_V; output
concat(heads) W_O. A variant of Xue & Aletras 2023, section 3, of this project's own.
Parameters without biases: C d + kdim d + vdim d + n C + n d C.
"""

from typing import Any

from torch import Tensor

from fairseq_mhe.attention.composed import ComposedQueryAttention, random_signs
from fairseq_mhe.attention.fitting import Parameters, means
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.attention.mhe import factors_of_mean


class MHEInput(ComposedQueryAttention):
    """The query's input scaled for every head; keys and values are shared as they are."""

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        self.project(1, kept=1)
        self.input_scale = random_signs(num_heads, embed_dim)  # (n, C), g_i

    def composed(self) -> tuple[Tensor, Tensor | None]:
        """(n, d, C), (n, d): g_i before the shared projection, whose bias all heads share."""
        bias = self.q_proj.bias
        weight = self.q_proj.weight * self.input_scale.unsqueeze(1)  # (n, d, C)
        return weight, None if bias is None else bias.expand(self.num_heads, -1)

    def pooled(self, heads: Heads) -> Parameters:
        """Means of the heads, and the factors of their inputs that bring them closest to each."""
        query = heads.of_width(self.head_dim).query  # (n, d, C)
        return {**means(self, heads), "input_scale": factors_of_mean(query.transpose(1, 2))}

"""MHE with turns: the shared query is turned for every head, where MHE-Mul only stretches it.

q_i = X W_Q diag(a_i) F diag(b_i) F^T diag(c_i), with F the orthogonal cosine transform (DCT-II) of
d numbers, which is fixed; head i: softmax(q_i (Y W_K)^T / sqrt(d)) Y W_V; output concat(heads) W_O.
With signs as a_i, b_i and c_i, as at the start, the product is orthogonal: heads begin with truly
different queries. Three vectors of d numbers a head, as in Xue & Aletras 2023, all of which count:
with b_i = 1 it is MHE-Mul. Diagonals between fixed orthogonal transforms stand for a matrix as in
Le, Sarlos & Smola 2013 (Fastfood); this use of them is this project's own.
Parameters without biases: C d + kdim d + vdim d + 3 n d + n d C.

A cosine transform exists for every d, where a Hadamard transform wants a power of two.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.composed import ComposedQueryAttention, random_signs
from fairseq_mhe.attention.fitting import Parameters, Trained, means
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.attention.mhe import factors_of_mean, factors_of_scores


class MHETurn(ComposedQueryAttention):
    """The query turned for every head; keys and values are shared as they are.

    From trained heads it starts as the MHE-Mul that comes closest, a turn by nothing.
    """

    fits_by_tensorly = True
    first_scale: nn.Parameter  # (n, d), a_i
    middle_scale: nn.Parameter  # (n, d), b_i
    last_scale: nn.Parameter  # (n, d), c_i

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        self.project(1, kept=1)
        self._transform: Tensor | None = None
        for name in ("first_scale", "middle_scale", "last_scale"):
            self.register_parameter(name, random_signs(num_heads, self.head_dim))

    def composed(self) -> tuple[Tensor, Tensor | None]:
        """(n, d, C), (n, d): the turn of each head, after the shared projection."""
        weight = self.q_proj.weight
        transform = self._transform
        if transform is None or (transform.dtype, transform.device) != (
            weight.dtype,
            weight.device,
        ):
            transform = cosine_transform(self.head_dim, weight.dtype, weight.device)
            self._transform = transform  # (d, d), F
        turn = (transform * self.middle_scale.unsqueeze(1)) @ transform.T  # (n, d, d)
        turn = self.first_scale.unsqueeze(2) * turn * self.last_scale.unsqueeze(1)
        turned = turn.transpose(1, 2) @ weight  # (n, d, C)
        bias = self.q_proj.bias
        return turned, None if bias is None else bias @ turn  # (n, d)

    def near(self, trained: Trained) -> Parameters:
        """As MHE-Mul comes closest."""
        return _without_turns(*factors_of_scores(self, trained))

    def pooled(self, heads: Heads) -> Parameters:
        """Means of the heads, and the factors that bring them closest to each."""
        factors = factors_of_mean(heads.of_width(self.head_dim).query)
        return _without_turns(means(self, heads), factors)


def _without_turns(parameters: Parameters, factors: Tensor) -> Parameters:
    """The factors (n, d) of each head's query, and no turn."""
    one = torch.ones_like(factors)
    return {**parameters, "first_scale": factors, "middle_scale": one, "last_scale": one.clone()}


def cosine_transform(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(d, d): the orthogonal DCT-II, column k a cosine of k half periods; computed in float64."""
    with torch.inference_mode(False):
        place = torch.arange(width, dtype=torch.float64, device=device) + 0.5
        wave = torch.arange(width, dtype=torch.float64, device=device)
        cosines = torch.cos(math.pi / width * place.unsqueeze(1) * wave)  # (d, d)
        lengths = ((1 + wave.clamp(max=1)) / width).sqrt()  # (d,)
        return (cosines * lengths).to(dtype)

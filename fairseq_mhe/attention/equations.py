"""Parts of the kinds' equations: plain tensor code with one softmax a head, for tests and readers.

Each kind's method ``equation`` takes the query input x (T, B, C), the key and value input y (S, B,
kdim) and a boolean mask (B, T, S), true where a query must not look. It returns the output (T, B,
C) and the weights (H, B, T, S). It uses the kind's parameters, but none of its hooks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

#: The output (T, B, C) and the weights (H, B, T, S).
Result = tuple[Tensor, Tensor]


def affine(layer: nn.Linear, x: Tensor) -> Tensor:
    """(T, B, in) -> (T, B, out): x W^T + b."""
    product = x @ layer.weight.t()
    return product if layer.bias is None else product + layer.bias


def heads_of(layer: nn.Linear, x: Tensor, heads: int) -> Sequence[Tensor]:
    """(T, B, in) -> one (T, B, d) for each head."""
    return affine(layer, x).chunk(heads, dim=-1)


def attend_heads(
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    mask: Tensor,
) -> Result:
    """Return each head's softmax(Q_i K_i^T / sqrt(d)) V_i side by side, (T, B, n d), and weights.

    ``queries``, ``keys`` and ``values``: one (T or S, B, d) for each head.
    """
    scores = []
    for q, k in zip(queries, keys, strict=True):
        scores.append(torch.einsum("tbd,sbd->bts", q, k) / q.size(-1) ** 0.5)
    return average(scores, values, mask)


def average(scores: Sequence[Tensor], values: Sequence[Tensor], mask: Tensor) -> Result:
    """Return softmax(S_i) V_i side by side, given scores (B, T, S) and values (S, B, d)."""
    heads, weights = [], []
    for score, v in zip(scores, values, strict=True):
        w = torch.softmax(score.masked_fill(mask, float("-inf")), dim=-1)  # (B, T, S)
        heads.append(torch.einsum("bts,sbd->tbd", w, v))
        weights.append(w)
    return torch.cat(heads, dim=-1), torch.stack(weights)

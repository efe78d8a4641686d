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


def affine(layer: nn.Linear, x: Tensor, taps: Tensor | None = None) -> Tensor:
    """(T, B, in) -> (T, B, out): x W^T + b; x W^T is filtered by ``taps`` (J, out), if any."""
    product = x @ layer.weight.t()
    if taps is not None:
        product = filtered(product, taps)
    return product if layer.bias is None else product + layer.bias


def heads_of(
    layer: nn.Linear, x: Tensor, heads: int, taps: Tensor | None = None
) -> Sequence[Tensor]:
    """(T, B, in) -> one (T, B, d) for each head; ``taps`` (J, heads d) as in `affine`."""
    return affine(layer, x, taps).chunk(heads, dim=-1)


def filtered(x: Tensor, taps: Tensor) -> Tensor:
    """(T, B, d), (J, d) -> (T, B, d): sum_j taps_j x_{t-j}, with x = 0 before the sentence."""
    positions = []
    for t in range(len(x)):
        read = range(min(len(taps), t + 1))
        positions.append(torch.stack([taps[j] * x[t - j] for j in read]).sum(dim=0))
    return torch.stack(positions)


def attend_heads(
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    mask: Tensor,
    output: nn.Linear,
) -> Result:
    """Return concat_i(softmax(Q_i K_i^T / sqrt(d)) V_i) W_O, and the weights.

    ``queries``, ``keys`` and ``values``: one (T or S, B, d) for each head, or for each group of
    adjacent heads.
    """
    scores = scores_of(queries, keys, queries[0].size(-1))
    heads, weights = average(scores, values, mask)
    return affine(output, heads), weights


def scores_of(
    queries: Sequence[Tensor], keys: Sequence[Tensor], width: int
) -> list[Tensor]:
    """Return Q_i K_i^T / sqrt(width), (B, T, S) for each head; arguments as `attend_heads`."""
    scores = []
    count = max(len(queries), len(keys))
    for i in range(count):
        q, k = queries[i * len(queries) // count], keys[i * len(keys) // count]
        scores.append(torch.einsum("tbd,sbd->bts", q, k) / width**0.5)
    return scores


def average(
    scores: Sequence[Tensor], values: Sequence[Tensor], mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Return softmax(S_i) V_i side by side, (T, B, n d), and the weights.

    ``scores``: (B, T, S) for each head; ``values``: (S, B, d) for each head or group of heads.
    """
    heads, weights = [], []
    for i, score in enumerate(scores):
        w = torch.softmax(score.masked_fill(mask, float("-inf")), dim=-1)  # (B, T, S)
        v = values[i * len(values) // len(scores)]
        heads.append(torch.einsum("bts,sbd->tbd", w, v))
        weights.append(w)
    return torch.cat(heads, dim=-1), torch.stack(weights)

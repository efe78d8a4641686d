"""Keys that are read together with those before them: laid side by side, or their scores added.

A query of j times the width of keys has a part for each of j keys: the first for the key at a
place, the second for the one before it, and so on. Before a sentence begins, and at padding, keys
are 0.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def side_by_side(key: Tensor, count: int, padding: Tensor | None) -> Tensor:
    """(B, Hk, S, d) -> (B, Hk, S, count * d): each key with those before it; padding (B, S)."""
    if padding is not None:
        key = key.masked_fill(padding.bool()[:, None, :, None], 0.0)
    length = key.size(2)
    return torch.cat([pad(key, (0, 0, j, 0))[:, :, :length] for j in range(count)], dim=3)


def parts_after_each_other(query: Tensor, width: int) -> Tensor:
    """(N, H, T, count * d) -> (N, H, count * T, d), d = ``width``: first parts first."""
    return query.unflatten(3, (-1, width)).transpose(2, 3).flatten(2, 3)


def added_up(scores: Tensor, count: int, padding: Tensor | None) -> Tensor:
    """(N, H, count * T, S) of such parts -> (N, H, T, S): what a key has together with others.

    For the few queries of a step this is less than keys side by side would copy. Padding: (B, S),
    B divides N.
    """
    if padding is not None:
        hidden = padding.bool()[:, None, None, None, :]  # (B, 1, 1, 1, S)
        by_sentence = scores.unflatten(0, (padding.size(0), -1))  # (B, N / B, H, count * T, S)
        scores = by_sentence.masked_fill(hidden, 0.0).flatten(0, 1)
    length = scores.size(3)
    total, *others = scores.unflatten(2, (count, -1)).unbind(2)  # (N, H, T, S) each
    for j, part in enumerate(others, 1):
        total = total + pad(part, (j, 0))[..., :length]
    return total

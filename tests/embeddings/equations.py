"""Each hashed embedding as its paper writes it, word by word, in plain tensor math.

No code of the package is used. ``value`` is the 128-bit integer that a word's hash is.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def bits_of(value: int) -> Tensor:
    """(128,), the highest first."""
    return torch.tensor([float(digit) for digit in format(value, "0>128b")])


def hash_pool(module: nn.Module, value: int) -> Tensor:
    text = format(value, "0>128b")
    pieces = [1 + int(text[start : start + 10], 2) for start in range(0, 128, 10)]
    assert len(pieces) == 13
    weights = module.mixing.exp() / module.mixing.exp().sum(0)  # (13, C)
    total = torch.zeros(module.mixing.size(1))
    for k, piece in enumerate(pieces):
        total = total + module.rows[piece] * weights[k]
    return total


def hash_add(module: nn.Module, value: int) -> Tensor:
    b = bits_of(value)
    return (module.ones @ b + module.zeros @ (1 - b)) / 128**0.5


def hash_proj(module: nn.Module, value: int) -> Tensor:
    b, w = bits_of(value), module.directions
    found = [torch.corrcoef(torch.stack((b, row)))[0, 1] for row in w]
    return torch.stack(found)


EQUATIONS = {"hash_pool": hash_pool, "hash_add": hash_add, "hash_proj": hash_proj}

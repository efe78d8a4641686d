"""Filters over neighbouring positions, in a form that is fast on all devices."""

from torch import Tensor
from torch.nn.functional import pad

#: Positions that a filter reads: one position and the two before it.
TAPS = 3


def filtered(x: Tensor, taps: Tensor, dim: int) -> Tensor:
    """Return sum_j taps[j] * x_{s-j} at each position s along the negative ``dim`` of x.

    Before the first position x is 0. ``taps``: (J, ...), where taps[j] is multiplied by x.
    """
    before = len(taps) - 1
    padded = pad(x, [0, 0] * (-1 - dim) + [before, 0])
    result = x * taps[0]
    for j in range(1, len(taps)):
        shifted = padded.narrow(dim, before - j, x.size(dim))
        result = result + shifted * taps[j]
    return result

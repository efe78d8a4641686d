"""Masks say at which keys a query must not look: as booleans, or as numbers added to the scores."""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CausalMask:
    """The mask (T, T) that hides later positions from every query; fused kernels need no tensor."""

    length: int
    device: torch.device | None = None

    @functools.cached_property
    def hidden(self) -> Tensor:
        """(T, T), true where a query must not look; all layers of a forward pass share it."""
        shape = self.length, self.length
        return torch.ones(shape, dtype=torch.bool, device=self.device).triu(1)


#: (T, S), boolean (true: the query must not look) or added to the scores; or a `CausalMask`.
Mask = Tensor | CausalMask


def padded_on_the_right(padding: Tensor) -> bool:
    """Return whether ``padding`` (B, S), true at padding, is only on the right of each sentence.

    Then no real token sees it through a causal mask. The host waits if the tensor is on a GPU.
    """
    padding = padding.bool()
    before_real = padding[:, :-1] & ~padding[:, 1:]  # (B, S - 1)
    return not before_real.any()


def as_additive(mask: Mask, dtype: torch.dtype) -> Tensor:
    """Return a mask of any form as numbers to add to scores: (T, S), or (B, S) of padding."""
    if isinstance(mask, CausalMask):
        mask = mask.hidden
    if mask.is_floating_point():
        return mask.to(dtype)
    zeros = torch.zeros_like(mask, dtype=dtype)
    return zeros.masked_fill(mask.bool(), float("-inf"))


def joined(
    key_padding_mask: Tensor | None,
    attn_mask: Mask | None,
    dtype: torch.dtype,
    repeats: int = 1,
) -> Tensor | None:
    """Join padding (B, S) and a mask (T, S) to one additive mask; None without either.

    Shape: (B or 1, 1, 1 or repeats * T, S). ``repeats``: how often the T queries follow each other.
    """
    mask = None
    if attn_mask is not None:
        mask = as_additive(attn_mask, dtype).repeat(1, 1, repeats, 1)  # (1, 1, R, S)
    if key_padding_mask is not None:
        padding = as_additive(key_padding_mask, dtype)[:, None, None]  # (B, 1, 1, S)
        mask = padding if mask is None else mask + padding
    return mask


def hide(
    scores: Tensor, key_padding_mask: Tensor | None, attn_mask: Mask | None
) -> Tensor:
    """Apply padding (B, S) and a mask (T, S) to scores (N, H, T, S); B divides N."""
    if attn_mask is not None:
        scores = scores + as_additive(attn_mask, scores.dtype)
    if key_padding_mask is not None:
        sentences = len(key_padding_mask)
        by_sentence = scores.unflatten(0, (sentences, -1))  # (B, N / B, H, T, S)
        hidden = key_padding_mask.bool()[:, None, None, None]  # (B, 1, 1, 1, S)
        scores = by_sentence.masked_fill(hidden, float("-inf")).flatten(0, 1)
    return scores

"""The attention product as its equation reads; the tests compare the fused calls with it."""

import torch
from torch import Tensor

from fairseq_mhe.attention.masks import Mask, hide


def attend_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    key_padding_mask: Tensor | None = None,
    attn_mask: Mask | None = None,
) -> tuple[Tensor, Tensor]:
    """Return softmax(Q_i K_i^T * scale + mask) V_i of each head, (N, H, T, dv), and the weights.

    Shared heads are copied.

    Args:
        query: (N, H, T, dk). key: (B, Hk, S, dk). value: (B, Hv, S, dv). Hk and Hv divide H.
        B divides N: the N / B hypotheses of a sentence are neighbours and share its keys.
        key_padding_mask: (B, S), true where a key is padding.
        attn_mask: (T, S), true or -inf where a query must not look; or a `CausalMask`.
    """
    rows, num_heads = query.shape[:2]
    key = _copied(key, rows, num_heads)  # (N, H, S, dk)
    value = _copied(value, rows, num_heads)  # (N, H, S, dv)
    scores = query @ key.transpose(-2, -1) * scale  # (N, H, T, S)
    scores = hide(scores, key_padding_mask, attn_mask)
    precise = torch.promote_types(scores.dtype, torch.float32)  # as fairseq's softmax
    weights = scores.softmax(dim=-1, dtype=precise).to(scores.dtype)
    return weights @ value, weights


def _copied(x: Tensor, rows: int, num_heads: int) -> Tensor:
    """(B, Hk, S, d) -> (N, H, S, d): one copy for each hypothesis and each head that reads it."""
    by_row = x.repeat_interleave(rows // x.size(0), dim=0)
    return by_row.repeat_interleave(num_heads // x.size(1), dim=1)

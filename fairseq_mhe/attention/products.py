"""Matrix products of heads that share keys or values, without a copy of any head.

Rows that read the same head (those of its group of heads, in all hypotheses of its sentence) become
rows of one matrix product. So each head is read only once.

Shapes: B sentences, N rows (B, or B times the beam), H heads, of which groups share one of Hk, and
R = N / B * H / Hk * T vectors that read the same head.
"""

import torch
from torch import Tensor


def product(rows: Tensor, columns: Tensor) -> Tensor:
    """(N, H, T, d), (B, Hk, d, e) -> (N, H, T, e): each row, multiplied by its head's matrix."""
    grouped = group_rows(rows, *columns.shape[:2])  # (B, Hk, R, d)
    return ungroup_rows(torch.matmul(grouped, columns), rows.shape)


def sum_of_products(a: Tensor, b: Tensor, kv_heads: int) -> Tensor:
    """(B, H, T, S), (B, H, T, d) -> (B, Hk, S, d): the sums of a^T b over each group of heads."""
    grouped = group_rows(a, len(a), kv_heads)  # (B, Hk, R, S)
    return torch.matmul(grouped.transpose(2, 3), group_rows(b, len(b), kv_heads))


def group_rows(x: Tensor, sentences: int, kv_heads: int) -> Tensor:
    """Group rows that read the same head: (N, H, T, d) -> (B, kv_heads, R, d), mostly a view."""
    rows, heads, length, width = x.shape
    beam, group = rows // sentences, heads // kv_heads
    if beam > 1 and kv_heads > 1:
        x = x.reshape(sentences, beam, kv_heads, group * length, width).transpose(1, 2)
    return x.reshape(sentences, kv_heads, beam * group * length, width)


def ungroup_rows(x: Tensor, shape: torch.Size) -> Tensor:
    """Undo `group_rows`: (B, kv_heads, R, e) -> (N, H, T, e) of ``shape`` (N, H, T, ...)."""
    rows, heads, length = shape[:3]
    sentences, kv_heads, _, width = x.shape
    if rows > sentences and kv_heads > 1:
        x = x.unflatten(2, (rows // sentences, -1))  # (B, kv_heads, beam, group * T, e)
        x = x.transpose(1, 2)  # (B, beam, kv_heads, group * T, e)
    return x.reshape(rows, heads, length, width)

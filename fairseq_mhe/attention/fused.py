"""The attention product by torch's fused kernels, or by few products where none fits or is slower.

Shapes: B sentences, N query rows (B, or B times the beam), H heads, Hk key heads, Hv value heads, T
queries, S keys, and R = N / B * H / Hk * T query vectors that read the same key head.
"""

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_mhe.attention import few_shapes
from fairseq_mhe.attention.masks import CausalMask, Mask, hide, joined
from fairseq_mhe.attention.products import group_rows, product, ungroup_rows

_VECTOR_SIZE = 16  # float32 numbers in the longest vector register, AVX-512's
_FUSED_BF16_KEYS = 512  # with fewer keys the CPU's fused kernel trains slowly in bfloat16
_FLASH_MAX_DIM = 256  # width of the widest head that flash attention accepts
_LEVELS = 2**16  # `drop` draws 16 random bits for a number, one of so many levels
#: torch's kernels on a GPU without cuDNN's, which makes a plan for every new shape; nearly all
#: batches have a new shape, and an update on an H200 took ten times as long (docs/gpu.md).
_WITHOUT_CUDNN = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


class Attended(NamedTuple):
    """What attention returns."""

    heads: Tensor  # (N, H, T, dv)
    weights: Tensor | None = None  # (N, H, T, S), before dropout; None if nobody asked


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    key_padding_mask: Tensor | None = None,
    attn_mask: Mask | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Attended:
    """Return softmax(Q_i K_i^T * scale + mask) V_i of each head as `attend_reference`, but fast.

    Arguments are those of `attend_reference`. ``dropout``: probability of dropping a weight, 0
    outside training. ``need_weights``: return the weights, too.
    """
    masks: dict[str, Any] = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}
    if not need_weights and _fusible(query, key, value, dropout):
        heads = _attend_fused(query, key, value, scale=scale, dropout=dropout, **masks)
        return Attended(heads[..., : value.size(3)])
    few = few_shapes.compiles_each_shape(query) and len(query) == len(key)
    if few and dropout == 0 and not need_weights:
        mask = joined(key_padding_mask, attn_mask, torch.float32)
        return Attended(few_shapes.attend(query, key, value, scale=scale, mask=mask))
    return attend_scores(
        scores_of(query, key, scale),
        lambda weights: product(weights, value),
        need_weights=need_weights,
        dropout=dropout,
        **masks,
    )


def scores_of(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """(N, H, T, dk), (B, Hk, S, dk) -> Q K^T * scale (N, H, T, S), by one product a key head."""
    scaled = query if scale == 1 else query * scale
    return product(scaled, key.transpose(2, 3))


def attend_scores(
    scores: Tensor,
    average: Callable[[Tensor], Tensor],
    *,
    key_padding_mask: Tensor | None = None,
    attn_mask: Mask | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Attended:
    """Return ``average`` of softmax(scores + mask) after dropout; scores: (N, H, T, S).

    ``average``: turns weights (N, H, T, S) into heads (N, H, T, dv).
    """
    weights = softmax(hide(scores, key_padding_mask, attn_mask))
    heads = average(drop(weights, dropout) if dropout else weights)
    return Attended(heads, weights if need_weights else None)


def _fusible(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> bool:
    """Return whether a fused kernel can compute this call, and faster than separate steps.

    On a GPU `_attend_fused` pads values that are narrower than keys. The CPU's kernel has no
    dropout. For a single query it takes 1.1 to 3 times as long as separate steps (torch 2.13, 25 to
    400 keys), and 1.5 to 8 times in bfloat16 with gradients (10 to 256 keys).
    """
    key_width, value_width = key.size(3), value.size(3)
    same_heads = key.size(1) == value.size(1)
    if query.is_cuda:
        return key_width >= value_width and (same_heads or key.size(1) == 1)
    trains_bf16 = torch.is_grad_enabled() and query.dtype == torch.bfloat16
    slow = query.size(2) == 1 or (trains_bf16 and key.size(2) < _FUSED_BF16_KEYS)
    return key_width == value_width and same_heads and dropout == 0 and not slow


def _attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    key_padding_mask: Tensor | None,
    attn_mask: Mask | None,
    dropout: float,
) -> Tensor:
    """Compute :func:`attend` by a fused kernel: heads (N, H, T, dk), zero in columns beyond dv."""
    missing = key.size(3) - value.size(3)  # columns
    if missing:
        value = F.pad(value, (0, missing))
    key = key.expand(-1, value.size(1), -1, -1)  # (B, Hv, S, dk), without a copy
    sentences, kv_heads = key.shape[:2]
    shared_heads = query.size(1) != kv_heads
    options: dict[str, Any] = {"scale": scale, "dropout_p": dropout}
    if isinstance(attn_mask, CausalMask) and key_padding_mask is None:
        half_precision = query.element_size() == 2
        flash = query.is_cuda and half_precision and query.size(3) <= _FLASH_MAX_DIM
        # Without a mask tensor only flash attention computes causal attention with shared heads.
        if flash or not shared_heads:
            options |= {"is_causal": True, "enable_gqa": shared_heads}
            return _torch_kernel(query, key, value, **options)
    grouped = group_rows(query, sentences, kv_heads)  # (B, kv_heads, R, dk)
    repeats = grouped.size(2) // query.size(2)  # R / T
    mask = joined(key_padding_mask, attn_mask, query.dtype, repeats)
    heads = _torch_kernel(grouped, key, value, attn_mask=mask, **options)
    return ungroup_rows(heads, query.shape)


def _torch_kernel(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Call the fused kernel that torch chooses, but cuDNN's only if FAIRSEQ_MHE_CUDNN=1."""
    if not query.is_cuda or os.environ.get("FAIRSEQ_MHE_CUDNN") == "1":
        return F.scaled_dot_product_attention(query, key, value, **options)
    with sdpa_kernel(_WITHOUT_CUDNN):
        return F.scaled_dot_product_attention(query, key, value, **options)


def softmax(scores: Tensor) -> Tensor:
    """Return the weights of scores (N, H, T, S), computed at least in float32 as in fairseq.

    On a CPU short rows are padded to a full vector register: else torch takes 3 to 4 times as long.
    """
    keys, dtype = scores.size(-1), scores.dtype
    if scores.device.type == "cpu" and keys < _VECTOR_SIZE:
        scores = F.pad(scores, (0, _VECTOR_SIZE - keys), value=float("-inf"))
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(dtype, torch.float32))
    return weights[..., :keys].to(dtype)


def drop(x: Tensor, p: float) -> Tensor:
    """Return x (any shape), each number set to 0 with probability p, or else scaled by 1 / (1 - p).

    In bfloat16 on a CPU four numbers share 64 random bits, so p is rounded to a multiple of
    1 / 65,536, but not to 0. torch (2.13) draws 64 bits for each and takes 4 to 5 times as long.
    """
    if x.dtype != torch.bfloat16 or x.device.type != "cpu":
        return F.dropout(x, p)
    kept_levels = min(round(_LEVELS * (1 - p)), _LEVELS - 1)
    random_bits = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64)
    random_bits.random_(-(2**63), None)
    levels = random_bits.view(torch.int16)[: x.numel()].view(x.shape)
    lowest_dropped = kept_levels - _LEVELS // 2  # as the lowest int16 is -_LEVELS // 2
    # The scale's bits times 0 or 1, in place, take half the time of a conversion to bfloat16.
    scale = torch.tensor(_LEVELS / max(1, kept_levels), dtype=torch.bfloat16)
    mask = levels.lt_(lowest_dropped).mul_(scale.view(torch.int16))
    return x * mask.view(torch.bfloat16)

"""The attention product softmax(Q K^T * scale) V, by torch's fused kernels or step by step.

Shapes: B sentences, N query rows (B, or B times the beam), H heads, Hk key heads, Hv value heads, T
queries, S keys, J keys that one score reads (1 except in ``mhe_conv`` and ``mha_conv``), and
R = N / B * H / Hk * T query vectors that read the same key head.
"""

import functools
import math
import os
from typing import Any

import torch
from torch import Tensor
from torch.backends import cuda
from torch.nn import functional as F

from fairseq_mhe.attention.cache import version

_VECTOR_SIZE = 16  # float32 numbers in the longest vector register, AVX-512's
_FUSED_BF16_KEYS = 512  # with fewer keys the CPU's fused kernel trains slowly in bfloat16
_FLASH_MAX_DIM = 256  # width of the widest head that flash attention accepts
_MASK_STRIDE = 16  # divides a mask's row stride, or the memory-efficient kernel copies it
_LEVELS = 2**16  # `drop` draws 16 random bits for a number, one of so many levels


class CausalMask:
    """The mask (T, T) that hides later positions from every query; all layers of a step share it.

    With ``right_padded`` the caller promises that padding is only on the right; nothing checks it.
    """

    def __init__(
        self, length: int, device: torch.device | None = None, right_padded: bool = False
    ) -> None:
        self.length, self.device, self.right_padded = length, device, right_padded
        self._checked_padding: Tensor | None = None
        self._hides_padding = right_padded

    @functools.cached_property
    def hidden(self) -> Tensor:
        """(T, T), true where a query must not look."""
        shape = self.length, self.length
        return torch.ones(shape, dtype=torch.bool, device=self.device).triu(1)

    def hides_padding(self, key_padding_mask: Tensor) -> bool:
        """Return whether padding (B, S) is only on the right, where the causal mask hides it."""
        # Only the first layer of a step makes the host wait for a GPU; others reuse the answer.
        if not self.right_padded and self._checked_padding is not key_padding_mask:
            self._checked_padding = key_padding_mask
            padding = key_padding_mask.bool()
            before_real = padding[:, :-1] & ~padding[:, 1:]  # (B, S - 1)
            self._hides_padding = not before_real.any()
        return self._hides_padding


#: (T, S), boolean (true: the query must not look) or added to the scores; or a `CausalMask`.
Mask = Tensor | CausalMask


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    key_padding_mask: Tensor | None = None,
    attn_mask: Mask | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    need_row_sums: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return H_i = softmax(Q_i K_i^T * scale) V_i without copying key and value heads H times.

    Queries that read the same key head (those of its group of heads, in all hypotheses of its
    sentence) become rows of one matrix product, which reads each key and value only once.

    Args:
        query: (N, H, T, dk), the hypotheses of a sentence next to each other; or (N, H, T, J, dk):
            score s adds up part j times key s - j, which is 0 at padding and before position 0.
        key: (B, Hk, S, dk), value: (B, Hv, S, dv); Hk and Hv divide H, B divides N.
        key_padding_mask: (B, S), true where a key is padding.
        dropout: probability of dropping a weight; 0 outside training.

    Returns:
        heads (N, H, T, dv); the weights (N, H, T, S) before dropout, or None; each row's sum of
        weights (N, H, T, 1) after dropout, or None.
    """
    # In a CPU's decoding step `masked_scores` shifts the scores, which are smaller than the keys.
    if query.dim() == 5 and (query.is_cuda or query.size(2) > 1):
        key = _with_previous_keys(key, query.size(3), key_padding_mask)
        query = query.flatten(3)  # (N, H, T, J * dk)
    if not (need_weights or need_row_sums) and _fusible(query, key, value, dropout):
        masks = key_padding_mask, attn_mask
        heads = _attend_fused(query, key, value, scale, *masks, dropout)
        return heads[..., : value.size(3)], None, None
    scores = masked_scores(query, key, scale, key_padding_mask, attn_mask)
    weights = softmax(scores)  # (N, H, T, S)
    dropped = drop(weights, dropout) if dropout else weights
    grouped = _group_rows(dropped, *value.shape[:2])  # (B, Hv, R, S)
    heads = torch.matmul(grouped, value)  # (B, Hv, R, dv)
    row_sums = dropped.sum(dim=-1, keepdim=True) if need_row_sums else None
    return _ungroup_rows(heads, query.shape), weights if need_weights else None, row_sums


def _fusible(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> bool:
    """Return whether a fused kernel can compute this call, and faster than separate steps.

    On a GPU `_attend_fused` pads values that are narrower than keys. The CPU's kernel has no
    dropout. For a single query it takes 1.1 to 3 times as long as separate steps (torch 2.13, 25 to
    400 keys), and 1.5 to 8 times in bfloat16 with gradients (10 to 256 keys).
    """
    query_width = query.shape[3:].numel()  # in a CPU's step J * dk, which no kernel takes
    key_width, value_width = key.size(3), value.size(3)
    same_heads = key.size(1) == value.size(1)
    if query.is_cuda:
        fits = query_width == key_width >= value_width
        return fits and (same_heads or key.size(1) == 1)
    trains_bf16 = torch.is_grad_enabled() and query.dtype == torch.bfloat16
    slow = query.size(2) == 1 or (trains_bf16 and key.size(2) < _FUSED_BF16_KEYS)
    same_width = query_width == key_width == value_width
    return same_width and same_heads and dropout == 0 and not slow


def _attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    key_padding_mask: Tensor | None,
    attn_mask: Mask | None,
    dropout: float,
) -> Tensor:
    """Compute :func:`attend` by a fused kernel: heads (N, H, T, dk), zero in columns beyond dv."""
    kernel = functools.partial(_torch_kernel, dropout_p=dropout, scale=scale)
    missing = key.size(3) - value.size(3)  # columns
    if missing:
        value = F.pad(value, (0, missing))
    key = key.expand(-1, value.size(1), -1, -1)  # (B, Hv, S, dk), without a copy
    sentences, kv_heads = key.shape[:2]
    shared_heads = query.size(1) != kv_heads
    half_precision = query.element_size() == 2
    flash = query.is_cuda and half_precision and query.size(3) <= _FLASH_MAX_DIM
    causal = False
    if isinstance(attn_mask, CausalMask):
        if key_padding_mask is not None and attn_mask.hides_padding(key_padding_mask):
            key_padding_mask = None
        causal = key_padding_mask is None
    # Without a mask tensor only flash attention computes causal attention with shared key heads.
    if causal and (not shared_heads or flash):
        return kernel(query, key, value, is_causal=True, enable_gqa=shared_heads)
    if trains_on_gpu(query) and kv_heads == 1 and len(query) == sentences:
        # Adding up the gradients of expanded keys launches fewer kernels than copying queries.
        kv_heads = query.size(1)
        key = key.expand(-1, kv_heads, -1, -1)  # (B, H, S, dk)
        value = value.expand(-1, kv_heads, -1, -1)  # (B, H, S, dk)
    grouped = _group_rows(query, sentences, kv_heads)  # (B, kv_heads, R, dk)
    repeats = grouped.size(2) // query.size(2)  # R / T
    make_mask = _shared_mask if query.is_cuda else _additive_mask
    mask = make_mask(key_padding_mask, attn_mask, repeats, query.dtype)
    heads = kernel(grouped, key, value, attn_mask=mask)
    return _ungroup_rows(heads, query.shape)


def trains_on_gpu(x: Tensor) -> bool:
    """Return whether x is on a GPU and autograd is on: few large kernels then train fastest."""
    return x.is_cuda and torch.is_grad_enabled()


def _torch_kernel(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Call the fused kernel that torch chooses, but cuDNN's only if FAIRSEQ_MHE_CUDNN=1.

    cuDNN makes a plan for every new shape, and nearly all batches have a new shape: an update on an
    H200 took ten times as long (results/gpu/shapes.md).
    """
    if not query.is_cuda or os.environ.get("FAIRSEQ_MHE_CUDNN") == "1":
        return F.scaled_dot_product_attention(query, key, value, **options)
    allowed = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(False)
    try:
        return F.scaled_dot_product_attention(query, key, value, **options)
    finally:
        cuda.enable_cudnn_sdp(allowed)


def masked_scores(
    query: Tensor,
    key: Tensor,
    scale: float,
    key_padding_mask: Tensor | None,
    attn_mask: Mask | None,
) -> Tensor:
    """Return Q K^T * scale (N, H, T, S), masked; shapes of arguments as in :func:`attend`."""
    sentences, key_heads = key.shape[:2]
    parts = 1
    if query.dim() == 5:
        parts = query.size(3)  # J
        query = query.transpose(2, 3).flatten(2, 3)  # (N, H, J * T, dk)
    grouped = _group_rows(query, sentences, key_heads)  # (B, Hk, R, dk)
    grouped = grouped if scale == 1 else grouped * scale
    products = torch.matmul(grouped, key.transpose(-2, -1))  # (B, Hk, R, S)
    scores = _ungroup_rows(products, query.shape)  # (N, H, J * T, S)
    if parts > 1:
        scores = _sum_shifted(scores, parts, key_padding_mask)
    if attn_mask is not None:
        scores = scores + as_additive(attn_mask, scores.dtype)
    if key_padding_mask is not None:
        scores = _fill_padding(scores, key_padding_mask, float("-inf"))
    return scores


def _fill_padding(scores: Tensor, padding: Tensor, number: float) -> Tensor:
    """Replace scores (N, H, T, S) by ``number`` where a key is padding (B, S); B divides N."""
    by_sentence = scores.unflatten(0, (len(padding), -1))  # (B, N / B, H, T, S)
    hidden = padding.bool()[:, None, None, None]  # (B, 1, 1, 1, S)
    return by_sentence.masked_fill(hidden, number).flatten(0, 1)


def _with_previous_keys(key: Tensor, count: int, padding: Tensor | None) -> Tensor:
    """Append to each key the keys before it: (B, Hk, S, d) -> (B, Hk, S, count * d)."""
    if padding is not None:
        key = key.masked_fill(padding.bool()[:, None, :, None], 0.0)
    length = key.size(2)
    padded = F.pad(key, (0, 0, count - 1, 0))  # (B, Hk, count - 1 + S, d)
    shifted = [padded.narrow(2, count - 1 - j, length) for j in range(count)]
    return torch.cat(shifted, dim=3)


def _sum_shifted(scores: Tensor, parts: int, padding: Tensor | None) -> Tensor:
    """Add up the scores of the query's parts, part j moved right by j keys, to (N, H, T, S)."""
    if padding is not None:
        scores = _fill_padding(scores, padding, 0.0)
    length = scores.size(3)
    total, *others = scores.unflatten(2, (parts, -1)).unbind(2)  # (N, H, T, S) each
    for j, part in enumerate(others, 1):
        total = total + F.pad(part, (j, 0))[..., :length]
    return total


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


def _group_rows(x: Tensor, sentences: int, kv_heads: int) -> Tensor:
    """Group rows that read the same head: (N, H, T, d) -> (B, kv_heads, R, d), mostly a view."""
    rows, heads, length, width = x.shape
    beam, group = rows // sentences, heads // kv_heads
    if beam > 1 and kv_heads > 1:
        x = x.reshape(sentences, beam, kv_heads, group * length, width).transpose(1, 2)
    return x.reshape(sentences, kv_heads, beam * group * length, width)


def _ungroup_rows(x: Tensor, shape: torch.Size) -> Tensor:
    """Undo :func:`_group_rows`: (B, kv_heads, R, e) -> (N, H, T, e) of ``shape`` (N, H, T, ...)."""
    rows, heads, length = shape[:3]
    sentences, kv_heads, _, width = x.shape
    if rows > sentences and kv_heads > 1:
        x = x.unflatten(2, (rows // sentences, -1))  # (B, kv_heads, beam, group * T, e)
        x = x.transpose(1, 2)  # (B, beam, kv_heads, group * T, e)
    return x.reshape(rows, heads, length, width)


def _shared_mask(*arguments: Any) -> Tensor | None:
    """Return `_additive_mask`, which all layers of a step on a GPU share: it launches kernels.

    On a CPU a cached mask would only take memory.
    """
    versions = map(version, filter(torch.is_tensor, arguments))
    # Autograd refuses a mask that was computed in inference mode.
    state = torch.is_inference_mode_enabled(), *versions
    return _cached_mask(state, *arguments)


# A search needs a mask for each layer, whose cache has its own padding; training needs only two.
@functools.lru_cache(maxsize=32)
def _cached_mask(state: object, *arguments: Any) -> Tensor | None:
    """Return `_additive_mask`, computed once for the same tensors (torch hashes them by identity).

    ``state`` changes when a mask is written to.
    """
    return _additive_mask(*arguments)


def _additive_mask(
    key_padding_mask: Tensor | None,
    attn_mask: Mask | None,
    repeats: int,
    dtype: torch.dtype,
) -> Tensor | None:
    """Join the masks to (B or 1, 1, 1 or repeats * T, S), to add to scores; None without masks."""
    mask = None
    if attn_mask is not None:
        mask = as_additive(attn_mask, dtype).repeat(1, 1, repeats, 1)  # (1, 1, R, S)
    if key_padding_mask is not None:
        padding = as_additive(key_padding_mask, dtype)[:, None, None]  # (B, 1, 1, S)
        mask = padding if mask is None else mask + padding
    if mask is None:
        return None
    keys = mask.size(3)
    return F.pad(mask, (0, -keys % _MASK_STRIDE))[..., :keys]


def as_additive(mask: Mask, dtype: torch.dtype) -> Tensor:
    """Return a mask of any form as numbers to add to scores: (T, S), or (B, S) of padding."""
    if isinstance(mask, CausalMask):
        mask = mask.hidden
    if mask.is_floating_point():
        return mask.to(dtype)
    zeros = torch.zeros_like(mask, dtype=dtype)
    return zeros.masked_fill(mask.bool(), float("-inf"))

"""The attention product itself, by torch's fused kernels or by separate steps."""

import functools
import math
import os
from typing import Any

import torch
from torch import Tensor
from torch.backends import cuda
from torch.nn import functional as F

from fairseq_mhe.attention.cache import version

# B sentences, N query rows (B times the beam), H heads, Hk and Hv kept key and value heads, T
# queries, S keys, R = N / B * H / Hk * T rows of queries that read one kept head.
_VECTOR = 16  # numbers of float32 in the longest vector register, AVX-512's
_LONG = 512  # keys from which the CPU's fused kernel is as fast in bfloat16 training
_FLASH_WIDTH = 256  # numbers in the widest head that flash attention takes
_MASK_STRIDE = 16  # numbers that spare the memory-efficient kernel a copy of its mask
_LEVELS = 2**16  # values that `drop` can tell apart


class CausalMask:
    """The mask (T, T) by which no query sees what comes after it; one for all layers of a step.

    ``right_padded``: padding is known to be only on the right, which is not asked then.
    """

    def __init__(
        self, length: int, device: torch.device | None = None, right_padded: bool = False
    ) -> None:
        self.length, self.device, self.right_padded = length, device, right_padded
        self._padding: Tensor | None = None
        self._hides_padding = right_padded

    @functools.cached_property
    def hidden(self) -> Tensor:
        """(T, T), true where a query must not look."""
        shape = self.length, self.length
        return torch.ones(shape, dtype=torch.bool, device=self.device).triu(1)

    def hides_padding(self, key_padding_mask: Tensor) -> bool:
        """True if padding (B, S), asked once for all layers of a step, is only on the right, where
        the causal mask already hides it.
        """
        if not self.right_padded and self._padding is not key_padding_mask:
            self._padding = key_padding_mask
            padding = key_padding_mask.bool()
            before_real = padding[:, :-1] & ~padding[:, 1:]  # (B, S - 1)
            self._hides_padding = not bool(before_real.any())
        return self._hides_padding


#: (T, S), boolean (true: must not look) or additive; or the causal one.
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
    """H_i = softmax(Q_i K_i^T * scale) V_i, without ever writing kept heads out H times.

    Queries that read the same key head (its group of heads, and the hypotheses of its sentence) are
    laid one after another along query time: each key and value is read once for all of them.

    Args:
        query: (N, H, T, dk), the hypotheses of a sentence next to each other; or (N, H, T, j, dk),
            a part for a key and each before it, which are 0 at padding and before the sentence.
        key: (B, Hk, S, dk), value: (B, Hv, S, dv); Hk and Hv divide H, B divides N.
        key_padding_mask: (B, S), true where a key is padding.
        dropout: probability of dropping a weight; 0 outside training.

    Returns:
        heads (N, H, T, dv); the weights (N, H, T, S) before dropout, if needed; each row's sum of
        weights (N, H, T, 1) after dropout, if needed.
    """
    if query.dim() == 5 and (query.is_cuda or query.size(2) > 1):
        key = _side_by_side(key, query.size(3), key_padding_mask)
        query = query.flatten(3)  # (N, H, T, j * dk)
    if not (need_weights or need_row_sums) and _fusible(query, key, value, dropout):
        masks = key_padding_mask, attn_mask
        heads = _attend_fused(query, key, value, scale, *masks, dropout)
        return heads[..., : value.size(3)], None, None
    scores = masked_scores(query, key, scale, key_padding_mask, attn_mask)
    weights = softmax(scores)  # (N, H, T, S)
    dropped = drop(weights, dropout) if dropout else weights
    heads = torch.matmul(_fold(dropped, *value.shape[:2]), value)  # (B, Hv, R, dv)
    row_sums = dropped.sum(dim=-1, keepdim=True) if need_row_sums else None
    return _unfold(heads, query.shape), weights if need_weights else None, row_sums


def _fusible(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> bool:
    """Whether a fused kernel serves this call best.

    A GPU's takes narrower values padded. The CPU's has no dropout, and takes 1.1 to 3 times as long
    as separate steps in a step of decoding (torch 2.13, 25 to 400 keys), 1.5 to 8 times in bfloat16
    with gradients (10 to 256 keys).
    """
    step = query.size(2) == 1
    widths = query.shape[3:].numel(), key.size(3), value.size(3)
    same_width = len(set(widths)) == 1
    same_heads = key.size(1) == value.size(1)
    if query.is_cuda:
        fits = widths[0] == widths[1] >= widths[2]
        return fits and (same_heads or key.size(1) == 1)
    trained = torch.is_grad_enabled() and query.dtype == torch.bfloat16
    slow = step or (trained and key.size(2) < _LONG)
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
    """:func:`attend` by torch's fused kernels: heads (N, H, T, dv), or wider by padding."""
    options: dict[str, Any] = {"dropout_p": dropout, "scale": scale}
    narrower = key.size(3) - value.size(3)
    if narrower > 0:
        value = F.pad(value, (0, narrower))
    key = key.expand(-1, value.size(1), -1, -1)  # (B, Hv, S, dk), without a copy
    sentences, kept = key.shape[:2]
    causal, grouped = False, query.size(1) != kept
    # Flash attention alone lets causal queries share key heads.
    half = query.dtype in (torch.float16, torch.bfloat16)
    flash = query.is_cuda and half and query.size(3) <= _FLASH_WIDTH
    if isinstance(attn_mask, CausalMask):
        if key_padding_mask is not None and attn_mask.hides_padding(key_padding_mask):
            key_padding_mask = None
        causal = key_padding_mask is None
    if causal and (not grouped or flash):
        options |= {"is_causal": True, "enable_gqa": grouped}
        return _torch_kernel(query, key, value, **options)
    trained_on_gpu = query.is_cuda and torch.is_grad_enabled()
    if trained_on_gpu and kept == 1 and len(query) == sentences:
        # To add up the gradients of expanded keys takes fewer kernels than to copy queries.
        kept = query.size(1)
        key = key.expand(-1, kept, -1, -1)
        value = value.expand(-1, kept, -1, -1)
    folded = _fold(query, sentences, kept)  # (B, Hk, R, dk)
    masks = key_padding_mask, attn_mask
    versions = tuple(version(mask) for mask in masks if isinstance(mask, Tensor))
    # On a GPU to make it is a kernel; on a CPU to keep it is memory.
    make = _additive_mask if query.is_cuda else _additive_mask.__wrapped__
    repeats = folded.size(2) // query.size(2)
    mask = make(*masks, versions, repeats, query.dtype)
    heads = _torch_kernel(folded, key, value, attn_mask=mask, **options)  # (B, Hk, R, dv)
    return _unfold(heads, query.shape)


def _torch_kernel(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """torch's choice of a fused kernel; on CUDA cuDNN's only by FAIRSEQ_MHE_CUDNN=1.

    It plans for every new shape of a batch, and nearly all are new: an update on an H200 took ten
    times as long (docs/gpu.md).
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
    """query (N, H, T, dk) or (N, H, T, j, dk), key (B, Hk, S, dk) -> (N, H, T, S)."""
    sentences, kept = key.shape[:2]
    together = 1
    if query.dim() == 5:  # the parts of queries after each other: (N, H, j * T, dk)
        together = query.size(3)
        query = query.transpose(2, 3).flatten(2, 3)
    folded = _fold(query, sentences, kept)  # (B, Hk, R, dk)
    folded = folded if scale == 1 else folded * scale
    products = torch.matmul(folded, key.transpose(-2, -1))  # (B, Hk, R, S)
    scores = _unfold(products, query.shape)  # (N, H, T or j * T, S)
    if together > 1:
        scores = _added_up(scores, together, key_padding_mask)
    if attn_mask is not None:
        scores = scores + as_additive(attn_mask, scores.dtype)
    if key_padding_mask is not None:
        scores = _fill(scores, key_padding_mask, float("-inf"))
    return scores


def _fill(scores: Tensor, padding: Tensor, number: float) -> Tensor:
    """(N, H, T, S) with a number where a key is padding (B, S); B divides N."""
    by_sentence = scores.unflatten(0, (len(padding), -1))  # (B, N / B, H, T, S)
    hidden = padding.bool()[:, None, None, None]  # (B, 1, 1, 1, S)
    return by_sentence.masked_fill(hidden, number).flatten(0, 1)


def _side_by_side(key: Tensor, count: int, padding: Tensor | None) -> Tensor:
    """(B, Hk, S, d) -> (B, Hk, S, count * d): each key with those before it; padding (B, S)."""
    if padding is not None:
        key = key.masked_fill(padding.bool()[:, None, :, None], 0.0)
    length = key.size(2)
    padded = F.pad(key, (0, 0, count - 1, 0))  # (B, Hk, count - 1 + S, d)
    moved = [padded.narrow(2, count - 1 - j, length) for j in range(count)]
    return torch.cat(moved, dim=3)


def _added_up(scores: Tensor, count: int, padding: Tensor | None) -> Tensor:
    """Scores of the parts of queries (N, H, count * T, S) -> (N, H, T, S).

    A step of decoding moves these few numbers, not its keys as `_side_by_side` does.
    """
    if padding is not None:
        scores = _fill(scores, padding, 0.0)
    length = scores.size(3)
    total, *others = scores.unflatten(2, (count, -1)).unbind(2)  # (N, H, T, S) each
    for j, part in enumerate(others, 1):
        total = total + F.pad(part, (j, 0))[..., :length]
    return total


def softmax(scores: Tensor) -> Tensor:
    """Weights (N, H, T, S) of scores (N, H, T, S), computed in float32 at least, as fairseq's are.

    On a CPU keys that weigh nothing fill a vector register, or torch takes 3 to 4 times as long.
    """
    keys, dtype = scores.size(-1), scores.dtype
    if scores.device.type == "cpu" and keys < _VECTOR:
        scores = F.pad(scores, (0, _VECTOR - keys), value=float("-inf"))
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(dtype, torch.float32))
    return weights[..., :keys].to(dtype)


def drop(x: Tensor, p: float) -> Tensor:
    """Values of x (any shape), each 0 with probability p, the others scaled by 1 / (1 - p).

    In bfloat16 on a CPU p is rounded to a 65,536th, one at least, and 64 bits are drawn for four
    values: torch draws as many for each, which takes four to five times as long (2.13).
    """
    if x.dtype != torch.bfloat16 or x.device.type != "cpu":
        return F.dropout(x, p)
    kept = min(round(_LEVELS * (1 - p)), _LEVELS - 1)
    drawn = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64)
    drawn.random_(-(2**63), None)
    levels = drawn.view(torch.int16)[: x.numel()].view(x.shape)
    # In place, and by the 16 bits that the scale has in bfloat16: half the time of conversions.
    scale = torch.tensor(_LEVELS / max(1, kept), dtype=torch.bfloat16)
    mask = levels.lt_(kept - _LEVELS // 2).mul_(scale.view(torch.int16))
    return x * mask.view(torch.bfloat16)


def _fold(x: Tensor, sentences: int, kept: int) -> Tensor:
    """(N, H, T, d) -> (B, K, R, d): rows that read the same of K kept heads; mostly a view."""
    rows, heads, length, width = x.shape
    beam, group = rows // sentences, heads // kept
    if beam > 1 and kept > 1:
        x = x.reshape(sentences, beam, kept, group * length, width).transpose(1, 2)
    return x.reshape(sentences, kept, beam * group * length, width)


def _unfold(x: Tensor, shape: torch.Size) -> Tensor:
    """(B, K, R, e) -> (N, H, T, e): undoes :func:`_fold` of queries of ``shape`` (N, H, T, ...)."""
    rows, heads, length = shape[:3]
    sentences, kept, _, width = x.shape
    if rows > sentences and kept > 1:
        x = x.unflatten(2, (rows // sentences, -1))  # (B, K, beam, group * T, e)
        x = x.transpose(1, 2)  # (B, beam, K, group * T, e)
    return x.reshape(rows, heads, length, width)


#: A training has two, the encoder's and the decoder's; a search has one in each layer.
@functools.lru_cache(maxsize=32)
def _additive_mask(
    key_padding_mask: Tensor | None,
    attn_mask: Mask | None,
    versions: object,
    repeats: int,
    dtype: torch.dtype,
) -> Tensor | None:
    """(B, S) and (T, S) -> (B or 1, 1, 1 or repeats * T, S), to be added to scores; None of none.

    One for all layers of a step: kept while both are the same tensors, of these ``versions``.
    """
    mask = None
    if attn_mask is not None:
        mask = as_additive(attn_mask, dtype).repeat(repeats, 1)  # (R, S)
        mask = mask[None, None]
    if key_padding_mask is not None:
        padding = as_additive(key_padding_mask, dtype)[:, None, None]  # (B, 1, 1, S)
        mask = padding if mask is None else mask + padding
    if mask is None:
        return None
    keys = mask.size(3)
    return F.pad(mask, (0, -keys % _MASK_STRIDE))[..., :keys]


def as_additive(mask: Mask, dtype: torch.dtype) -> Tensor:
    """A mask of any form as one to add to scores (T, S)."""
    if isinstance(mask, CausalMask):
        mask = mask.hidden
    if mask.is_floating_point():
        return mask.to(dtype)
    nothing = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return nothing.masked_fill(mask.bool(), float("-inf"))

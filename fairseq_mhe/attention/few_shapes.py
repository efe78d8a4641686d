"""Matrix products of few shapes, for training in bfloat16 on a CPU.

There oneDNN compiles each product for its exact shape, in about a millisecond, and keeps half a
megabyte for it. Text has thousands of shapes. So rows, lengths and sentences are padded for the
products, and cut off afterwards: no padding reaches a result. An epoch of the quickstart has 744
shapes in place of 3,601 (`mha`; ONEDNN_VERBOSE=profile_create prints "create:cache_miss" for each).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.attention.products import product, sum_of_products

#: What sizes are padded to: rows of linear layers; sentences, queries and keys of attention.
_ROWS, _SENTENCES, _QUERIES, _KEYS = 32, 4, 4, 8
#: Fewest keys: the softmax of shorter rows does not fill a vector register, and takes longer.
_MIN_KEYS = 16


def compiles_each_shape(x: Tensor) -> bool:
    """Return whether products of ``x`` are worth padding: it trains in bfloat16 on a CPU."""
    on_cpu = x.device.type == "cpu"
    return on_cpu and x.dtype == torch.bfloat16 and torch.is_grad_enabled()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b as torch's ``linear``: (..., in), (out, in), (out,) -> (..., out)."""
    if not compiles_each_shape(x):
        return F.linear(x, weight, bias)
    rows = x.flatten(0, -2)  # (N, in)
    count = len(rows)
    padded = F.pad(rows, (0, 0, 0, -count % _ROWS))
    return F.linear(padded, weight, bias)[:count].unflatten(0, x.shape[:-1])


class Linear(nn.Linear):
    """Another linear layer's parameters, multiplied by `linear`."""

    def __init__(self, layer: nn.Linear) -> None:
        nn.Module.__init__(self)  # nn.Linear's would allocate another weight
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return linear(x, self.weight, self.bias)


def attend(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Return softmax(Q K^T * scale + mask) V of each head, (B, H, T, dv).

    Shapes: (B, H, T, dk), (B, Hk, S, dk), (B, Hv, S, dv); mask (B or 1, 1, T or 1, S) in float32.
    """
    result: Tensor = _Attend.apply(query, key, value, mask, scale)
    return result


class _Attend(torch.autograd.Function):
    """Computes `attend`; softmax and its gradient are computed in float32, as everywhere."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scale: float,
    ) -> Tensor:
        """Arguments are those of `attend`."""
        sentences, _, length, _ = query.shape
        batch = _round_up(sentences, _SENTENCES)
        queries = _round_up(length, _QUERIES)
        keys = max(_round_up(key.size(2), _KEYS), _MIN_KEYS)
        q = _padded(query, batch, queries).mul_(scale)  # (B', H, T', dk)
        k = _padded(key, batch, keys)  # (B', Hk, S', dk)
        v = _padded(value, batch, keys)  # (B', Hv, S', dv)
        scores = product(q, k.transpose(2, 3)).float()  # (B', H, T', S')
        if mask is None:
            mask = scores.new_zeros(1, 1, 1, key.size(2))
        # Padded queries and sentences may read padded keys: nobody reads what they compute.
        mask = F.pad(mask, (0, keys - key.size(2)), value=float("-inf"))
        scores[:sentences, :, :length] += mask
        weights = scores.softmax(-1)
        rounded = weights.to(query.dtype)
        ctx.save_for_backward(q, k, v, weights, rounded)
        ctx.scale = scale
        ctx.sizes = sentences, length, key.size(2)
        return product(rounded, v)[:sentences, :, :length]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        """(B, H, T, dv) -> the gradients of query, key and value."""
        q, k, v, weights, rounded = ctx.saved_tensors
        sentences, length, keys = ctx.sizes
        grad = _padded(grad_outputs[0], len(q), q.size(2))  # (B', H, T', dv)
        grad_v = sum_of_products(rounded, grad, v.size(1))  # (B', Hv, S', dv)
        grad_weights = product(grad, v.transpose(2, 3)).float()  # (B', H, T', S')
        grad_scores = torch._softmax_backward_data(
            grad_weights, weights, -1, torch.float32
        ).to(q.dtype)
        grad_q = product(grad_scores, k)[:sentences, :, :length] * ctx.scale
        grad_k = sum_of_products(grad_scores, q, k.size(1))  # (B', Hk, S', dk)
        grads = grad_q, grad_k[:sentences, :, :keys], grad_v[:sentences, :, :keys]
        return *grads, None, None


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _padded(x: Tensor, batch: int, length: int) -> Tensor:
    """Copy x (B, H, T, d) into zeros (``batch``, H, ``length``, d)."""
    sentences, heads, positions, width = x.shape
    result = x.new_zeros(batch, heads, length, width)
    result[:sentences, :, :positions] = x
    return result

"""Each kind of attention as its paper writes it, head by head, in plain tensor math; no code of the
package is used.

Every function takes the sublayer (for its weights only), the query input X (T, B, C), the key/value
input Y (S, B, C') and a boolean mask (B, T, S), true where a query must not look; it returns the
output (T, B, C) and the weights (H, B, T, S).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _linear(layer, x: Tensor) -> Tensor:
    out = x @ layer.weight.t()
    return out if layer.bias is None else out + layer.bias


def _combine(
    layer,
    queries: list[Tensor],
    keys: list[Tensor],
    values: list[Tensor],
    scale: float,
    mask: Tensor,
):
    """queries, keys, values: one (T or S, B, width) a head."""
    outputs, weights = [], []
    for q, k, v in zip(queries, keys, values, strict=True):
        scores = torch.einsum("tbd,sbd->bts", q, k) * scale
        scores = scores.masked_fill(mask, float("-inf"))
        w = torch.softmax(scores, dim=-1)
        outputs.append(torch.einsum("bts,sbd->tbd", w, v))
        weights.append(w)
    return _linear(layer.out_proj, torch.cat(outputs, dim=-1)), torch.stack(weights)


def _slices(x: Tensor, heads: int) -> list[Tensor]:
    return list(x.chunk(heads, dim=-1))


def mha(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Vaswani et al. 2017, section 3.2.2."""
    n = layer.num_heads
    projected = (
        _slices(_linear(p, z), n)
        for p, z in ((layer.q_proj, x), (layer.k_proj, y), (layer.v_proj, y))
    )
    return _combine(layer, *projected, 1 / math.sqrt(layer.head_dim), mask)


def _mhe(layer, x: Tensor, y: Tensor, mask: Tensor, psi: Callable[[Tensor, Tensor], Tensor]):
    """Xue & Aletras 2023, section 3."""
    q, k, v = _linear(layer.q_proj, x), _linear(layer.k_proj, y), _linear(layer.v_proj, y)
    heads = range(layer.num_heads)
    return _combine(
        layer,
        [psi(q, layer.query_embedding[i]) for i in heads],
        [psi(k, layer.key_embedding[i]) for i in heads],
        [psi(v, layer.value_embedding[i]) for i in heads],
        1 / math.sqrt(layer.head_dim),
        mask,
    )


def mhe_mul(layer, x: Tensor, y: Tensor, mask: Tensor):
    """MHE-Mul: psi(A, b) = A * (1 + b)."""
    return _mhe(layer, x, y, mask, lambda a, b: a * (1 + b))


def mhe_add(layer, x: Tensor, y: Tensor, mask: Tensor):
    """MHE-Add: psi(A, b) = A + b."""
    return _mhe(layer, x, y, mask, lambda a, b: a + b)


def sha(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: one head, repeated."""
    n = layer.num_heads
    projected = (
        [_linear(p, z)] * n for p, z in ((layer.q_proj, x), (layer.k_proj, y), (layer.v_proj, y))
    )
    return _combine(layer, *projected, 1 / math.sqrt(layer.head_dim), mask)


def gqa(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Ainslie et al. 2023, section 2.2: heads i of a group share key and value head i // (n /
    g).
    """
    n, g = layer.num_heads, layer.key_heads
    k, v = _slices(_linear(layer.k_proj, y), g), _slices(_linear(layer.v_proj, y), g)
    groups = [i // (n // g) for i in range(n)]
    queries = _slices(_linear(layer.q_proj, x), n)
    return _combine(
        layer, queries, [k[j] for j in groups], [v[j] for j in groups], layer.head_dim**-0.5, mask
    )


def mla(layer, x: Tensor, y: Tensor, mask: Tensor):
    """DeepSeek-V2, section 2.1, without rotary positions: K_i and V_i of one latent vector."""
    n, latent = layer.num_heads, _linear(layer.down_proj, y)  # (S, B, r)
    queries, keys, values = (
        _slices(_linear(p, z), n)
        for p, z in ((layer.q_proj, x), (layer.k_up_proj, latent), (layer.v_up_proj, latent))
    )
    return _combine(layer, queries, keys, values, layer.head_dim**-0.5, mask)


def skv(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: K_i = V_i."""
    shared = _slices(_linear(layer.kv_proj, y), layer.num_heads)
    queries = _slices(_linear(layer.q_proj, x), layer.num_heads)
    return _combine(layer, queries, shared, shared, layer.head_dim**-0.5, mask)


def el(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: slice i of Y is key and value of head i."""
    slices = _slices(y, layer.num_heads)
    return _combine(
        layer,
        _slices(_linear(layer.q_proj, x), layer.num_heads),
        slices,
        slices,
        layer.head_dim**-0.5,
        mask,
    )


def collaborative(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Cordonnier et al. 2020, equation 7, with the mixing on the keys, and the content term of
    section 3.3 as a sum.
    """
    q, k = _linear(layer.q_proj, x), _linear(layer.k_proj, y)
    values = _slices(_linear(layer.v_proj, y), layer.num_heads)
    scale = 1 / math.sqrt(layer.embed_dim / layer.num_heads)
    outputs, weights = [], []
    for i, v in enumerate(values):
        scores = torch.einsum("tbd,sbd->bts", q, k * layer.mixing[i]) * scale
        if layer.content_proj is not None:
            scores = scores + torch.einsum("sbc,c->bs", y, layer.content_proj.weight[i]).unsqueeze(
                1
            )
        w = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        outputs.append(torch.einsum("bts,sbd->tbd", w, v))
        weights.append(w)
    return _linear(layer.out_proj, torch.cat(outputs, dim=-1)), torch.stack(weights)


def conv(layer, x: Tensor, y: Tensor, mask: Tensor):
    """The scores of a key and of the two before it, each by an embedding of its own, added up."""
    n = layer.num_heads
    projections = (layer.q_proj, x), (layer.k_proj, y), (layer.v_proj, y)
    each = [_slices(_linear(p, z), layer.key_heads) for p, z in projections]
    outputs, weights = [], []
    for i in range(n):
        q, k, v = (heads[i % len(heads)] for heads in each)  # all, or the one for all
        scores = x.new_zeros(x.size(1), x.size(0), y.size(0))  # (B, T, S)
        for s in range(y.size(0)):
            for j in range(3):
                if s - j >= 0:
                    product = (q * layer.taps[i, j] * k[s - j]).sum(-1)  # (T, B)
                    scores[:, :, s] += product.t()
        scores = (scores / math.sqrt(layer.head_dim)).masked_fill(mask, float("-inf"))
        w = torch.softmax(scores, dim=-1)
        outputs.append(torch.einsum("bts,sbd->tbd", w, v))
        weights.append(w)
    return _linear(layer.out_proj, torch.cat(outputs, dim=-1)), torch.stack(weights)


EQUATIONS = {
    "sha": sha,
    "mqa": gqa,
    "gqa": gqa,
    "mla": mla,
    "skv": skv,
    "el": el,
    "collaborative": collaborative,
    **{"mha": mha, "mhe_mul": mhe_mul, "mhe_add": mhe_add},
    **{"mhe_conv": conv, "mha_conv": conv},
}

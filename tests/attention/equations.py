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


def _combine(layer, scores: list[Tensor], values: list[Tensor], mask: Tensor):
    """Scores (B, T, S), not yet scaled, and values (S, B, d), one each a head."""
    outputs, weights = [], []
    for score, v in zip(scores, values, strict=True):
        score = score / math.sqrt(layer.head_dim)
        w = torch.softmax(score.masked_fill(mask, float("-inf")), dim=-1)
        outputs.append(torch.einsum("bts,sbd->tbd", w, v))
        weights.append(w)
    return _linear(layer.out_proj, torch.cat(outputs, dim=-1)), torch.stack(weights)


def _dot(layer, queries: list[Tensor], keys: list[Tensor], values: list[Tensor], mask: Tensor):
    """queries, keys, values: one (T or S, B, width) a head, scored by their product."""
    pairs = zip(queries, keys, strict=True)
    return _combine(layer, [torch.einsum("tbd,sbd->bts", q, k) for q, k in pairs], values, mask)


def _slices(x: Tensor, heads: int) -> list[Tensor]:
    return list(x.chunk(heads, dim=-1))


def _projected(layer, x: Tensor, y: Tensor) -> list[Tensor]:
    """X W_Q, Y W_K and Y W_V."""
    projections = (layer.q_proj, x), (layer.k_proj, y), (layer.v_proj, y)
    return [_linear(projection, z) for projection, z in projections]


def mha(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Vaswani et al. 2017, section 3.2.2."""
    each = (_slices(z, layer.num_heads) for z in _projected(layer, x, y))
    return _dot(layer, *each, mask)


def _mhe(layer, x: Tensor, y: Tensor, mask: Tensor, psi: Callable[[Tensor, Tensor], Tensor]):
    """Xue & Aletras 2023, section 3."""
    embeddings = layer.query_embedding, layer.key_embedding, layer.value_embedding  # (n, d) each
    pairs = zip(_projected(layer, x, y), embeddings, strict=True)
    return _dot(layer, *([psi(z, head) for head in e] for z, e in pairs), mask)


def mhe_mul(layer, x: Tensor, y: Tensor, mask: Tensor):
    """MHE-Mul: psi(A, b) = A * (1 + b)."""
    return _mhe(layer, x, y, mask, lambda a, b: a * (1 + b))


def mhe_add(layer, x: Tensor, y: Tensor, mask: Tensor):
    """MHE-Add: psi(A, b) = A + b."""
    return _mhe(layer, x, y, mask, lambda a, b: a + b)


def sha(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: one head, repeated."""
    return _dot(layer, *([z] * layer.num_heads for z in _projected(layer, x, y)), mask)


def gqa(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Ainslie et al. 2023, section 2.2: head i has the key and value head i // (n / g)."""
    n, g = layer.num_heads, layer.key_heads
    q, k, v = _projected(layer, x, y)
    keys, values = ([_slices(z, g)[i // (n // g)] for i in range(n)] for z in (k, v))
    return _dot(layer, _slices(q, n), keys, values, mask)


def mla(layer, x: Tensor, y: Tensor, mask: Tensor):
    """DeepSeek-V2, section 2.1, without rotary positions: K_i and V_i of one latent vector."""
    latent = _linear(layer.down_proj, y)  # (S, B, r)
    projections = (layer.q_proj, x), (layer.k_up_proj, latent), (layer.v_up_proj, latent)
    each = (_slices(_linear(projection, z), layer.num_heads) for projection, z in projections)
    return _dot(layer, *each, mask)


def skv(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: K_i = V_i."""
    shared = _slices(_linear(layer.kv_proj, y), layer.num_heads)
    return _dot(layer, _slices(_linear(layer.q_proj, x), layer.num_heads), shared, shared, mask)


def el(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: slice i of Y is key and value of head i."""
    slices = _slices(y, layer.num_heads)
    return _dot(layer, _slices(_linear(layer.q_proj, x), layer.num_heads), slices, slices, mask)


def collaborative(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Cordonnier et al. 2020, equation 7, mixing the keys; section 3.3's content term as a sum."""
    q, k, v = _projected(layer, x, y)
    scores = [torch.einsum("tbd,sbd->bts", q, k * mixing) for mixing in layer.mixing]
    if layer.content_proj is not None:  # which has the scale already
        content = _linear(layer.content_proj, y) * math.sqrt(layer.head_dim)  # (S, B, n)
        scores = [s + c.t().unsqueeze(1) for s, c in zip(scores, content.unbind(2), strict=True)]
    return _combine(layer, scores, _slices(v, layer.num_heads), mask)


def conv(layer, x: Tensor, y: Tensor, mask: Tensor):
    """The scores of a key and of the two before it, each by an embedding of its own, added up."""
    each = [_slices(z, layer.key_heads) for z in _projected(layer, x, y)]
    all_scores, values = [], []
    for i in range(layer.num_heads):
        q, k, v = (heads[i % len(heads)] for heads in each)  # all, or the one for all
        scores = x.new_zeros(x.size(1), x.size(0), y.size(0))  # (B, T, S)
        for s in range(y.size(0)):
            for j in range(min(3, s + 1)):
                scores[:, :, s] += (q * layer.taps[i, j] * k[s - j]).sum(-1).t()  # (T, B)
        all_scores.append(scores)
        values.append(v)
    return _combine(layer, all_scores, values, mask)


EQUATIONS = {
    "mha": mha,
    "mhe_mul": mhe_mul,
    "mhe_add": mhe_add,
    "sha": sha,
    "mqa": gqa,
    "gqa": gqa,
    "mla": mla,
    "skv": skv,
    "el": el,
    "collaborative": collaborative,
    "mhe_conv": conv,
    "mha_conv": conv,
}

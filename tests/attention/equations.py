"""The equation of each kind as its paper writes it, head by head, without code of the package.

Every function takes the sublayer (for its weights only), the query input X (T, B, C), the key and
value input Y (S, B, C') and a boolean mask (B, T, S), true where a query must not look. It returns
the output (T, B, C) and the weights (H, B, T, S).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _linear(layer, x: Tensor) -> Tensor:
    out = x @ layer.weight.t()
    return out if layer.bias is None else out + layer.bias


def _combine(layer, scores: list[Tensor], values: list[Tensor], mask: Tensor):
    """Attend, given each head's scores (B, T, S), not yet scaled, and values (S, B, d)."""
    outputs, weights = [], []
    for score, v in zip(scores, values, strict=True):
        score = score / math.sqrt(layer.head_dim)
        w = torch.softmax(score.masked_fill(mask, float("-inf")), dim=-1)
        outputs.append(torch.einsum("bts,sbd->tbd", w, v))
        weights.append(w)
    return _linear(layer.out_proj, torch.cat(outputs, dim=-1)), torch.stack(weights)


def _dot(layer, queries: list[Tensor], keys: list[Tensor], values: list[Tensor], mask: Tensor):
    """Attend, given each head's queries, keys and values, (T or S, B, width) each."""
    pairs = zip(queries, keys, strict=True)
    return _combine(layer, [torch.einsum("tbd,sbd->bts", q, k) for q, k in pairs], values, mask)


def _slices(x: Tensor, heads: int) -> list[Tensor]:
    return list(x.chunk(heads, dim=-1))


def _projected(layer, x: Tensor, y: Tensor) -> list[Tensor]:
    """Return X W_Q, Y W_K and Y W_V."""
    projections = (layer.q_proj, x), (layer.k_proj, y), (layer.v_proj, y)
    return [_linear(projection, z) for projection, z in projections]


def mha(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Vaswani et al. 2017, section 3.2.2."""
    q, k, v = (_slices(z, layer.num_heads) for z in _projected(layer, x, y))
    return _dot(layer, q, k, v, mask)


def _mhe(layer, x: Tensor, y: Tensor, mask: Tensor, psi: Callable[[Tensor, Tensor], Tensor]):
    """Xue & Aletras 2023, section 3."""
    embeddings = layer.query_embedding, layer.key_embedding, layer.value_embedding  # (n, d) each
    pairs = zip(_projected(layer, x, y), embeddings, strict=True)
    q, k, v = ([psi(z, e_i) for e_i in e] for z, e in pairs)
    return _dot(layer, q, k, v, mask)


def mhe_mul(layer, x: Tensor, y: Tensor, mask: Tensor):
    """MHE-Mul: psi(A, b) = A * (1 + b)."""
    return _mhe(layer, x, y, mask, lambda a, b: a * (1 + b))


def mhe_add(layer, x: Tensor, y: Tensor, mask: Tensor):
    """MHE-Add: psi(A, b) = A + b."""
    return _mhe(layer, x, y, mask, lambda a, b: a + b)


def sha(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: one head, repeated."""
    q, k, v = ([z] * layer.num_heads for z in _projected(layer, x, y))
    return _dot(layer, q, k, v, mask)


def gqa(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Ainslie et al. 2023, section 2.2: head i reads key and value head i // (n / g)."""
    n, g = layer.num_heads, layer.kv_heads
    q, k, v = _projected(layer, x, y)
    keys, values = ([_slices(z, g)[i // (n // g)] for i in range(n)] for z in (k, v))
    return _dot(layer, _slices(q, n), keys, values, mask)


def mla(layer, x: Tensor, y: Tensor, mask: Tensor):
    """DeepSeek-V2, section 2.1, without rotary positions: K_i and V_i from one latent vector."""
    latent = _linear(layer.down_proj, y)  # (S, B, r)
    projections = (layer.q_proj, x), (layer.k_up_proj, latent), (layer.v_up_proj, latent)
    q, k, v = (_slices(_linear(projection, z), layer.num_heads) for projection, z in projections)
    return _dot(layer, q, k, v, mask)


def skv(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: K_i = V_i; the heads of a group share them."""
    n, g = layer.num_heads, layer.kv_heads
    groups = _slices(_linear(layer.kv_proj, y), g)
    shared = [groups[i // (n // g)] for i in range(n)]
    return _dot(layer, _slices(_linear(layer.q_proj, x), n), shared, shared, mask)


def el(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Xue & Aletras 2023, section 4: slice i of Y is key and value of head i."""
    slices = _slices(y, layer.num_heads)
    return _dot(layer, _slices(_linear(layer.q_proj, x), layer.num_heads), slices, slices, mask)


def collaborative(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Cordonnier et al. 2020, equation 7 with mixed keys, plus the content term of section 3.3."""
    q, k, v = _projected(layer, x, y)
    scores = [torch.einsum("tbd,sbd->bts", q, k * mixing) for mixing in layer.mixing]
    if layer.content_proj is not None:  # its weight contains the scale already
        content = _linear(layer.content_proj, y) * math.sqrt(layer.head_dim)  # (S, B, n)
        scores = [s + c.t().unsqueeze(1) for s, c in zip(scores, content.unbind(2), strict=True)]
    return _combine(layer, scores, _slices(v, layer.num_heads), mask)


def conv(layer, x: Tensor, y: Tensor, mask: Tensor):
    """A score adds up those of a key and of the two keys before it, each with its own embedding."""
    heads_of = layer.query_heads, layer.kv_heads, layer.kv_heads
    projected = list(map(_slices, _projected(layer, x, y), heads_of))
    all_scores, values = [], []
    for i in range(layer.num_heads):
        q, k, v = (heads[i % len(heads)] for heads in projected)  # n heads, or one for all
        scores = x.new_zeros(x.size(1), x.size(0), y.size(0))  # (B, T, S)
        for s in range(y.size(0)):
            for j in range(min(3, s + 1)):
                scores[:, :, s] += (q * layer.taps[i, j] * k[s - j]).sum(-1).t()  # (T, B)
        all_scores.append(scores)
        values.append(v)
    return _combine(layer, all_scores, values, mask)


def tucker(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Klein et al. 2026: all sums over the ranks written out."""
    q, k, v = _projected(layer, x, y)
    core_q = torch.einsum("na,abc->nbc", layer.score_weights, layer.score_matrices)
    core_o = torch.einsum("na,abc->nbc", layer.output_weights, layer.output_matrices)
    total, weights = x.new_zeros(*x.shape[:2], k.size(-1)), []
    for i in range(layer.num_heads):
        score = torch.einsum("tbq,qk,sbk->bts", q, core_q[i], k) / math.sqrt(layer.head_dim)
        w = torch.softmax(score.masked_fill(mask, float("-inf")), dim=-1)
        total = total + torch.einsum("bts,sbq,qk->tbk", w, v, core_o[i])
        weights.append(w)
    return _linear(layer.out_proj, total), torch.stack(weights)


def tpa(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Zhang et al. 2025: K_i(s) = 1/R sum_r a_ir(s) b_r(s), V_i alike, built in full."""
    n, rank = layer.num_heads, layer.tpa_rank

    def heads(vectors, numbers) -> list[Tensor]:
        b = _linear(vectors, y).unflatten(-1, (rank, -1))  # (S, B, R, d)
        a = _linear(numbers, y).unflatten(-1, (n, rank))  # (S, B, n, R)
        return [(a[:, :, i].unsqueeze(-1) * b).mean(dim=2) for i in range(n)]

    keys = heads(layer.k_proj, layer.k_head_proj)
    values = heads(layer.v_proj, layer.v_head_proj)
    return _dot(layer, _slices(_linear(layer.q_proj, x), n), keys, values, mask)


def mfa(layer, x: Tensor, y: Tensor, mask: Tensor):
    """Hu et al. 2025: multi-query attention with normalised queries of low rank."""
    latent = _linear(layer.q_down_proj, x)
    if layer.query_norm == "rms":
        latent = latent / (latent.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    n = layer.num_heads
    keys, values = [_linear(layer.k_proj, y)] * n, [_linear(layer.v_proj, y)] * n
    return _dot(layer, _slices(_linear(layer.q_proj, latent), n), keys, values, mask)


def mha_dconv(layer, x: Tensor, y: Tensor, mask: Tensor):
    """So et al. 2021, section 4.2: a filter for each channel after each projection."""
    filtered = []
    for name, z in (("q", x), ("k", y), ("v", y)):
        projection, taps = getattr(layer, f"{name}_proj"), getattr(layer, f"{name}_taps")
        plain = z @ projection.weight.t()
        rows = [sum(taps[j] * plain[t - j] for j in range(min(3, t + 1))) for t in range(len(z))]
        out = torch.stack(rows)
        out = out if projection.bias is None else out + projection.bias
        filtered.append(_slices(out, layer.num_heads))
    return _dot(layer, *filtered, mask)


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
    "mqa_conv": conv,
    "mha_dconv": mha_dconv,
    "tucker": tucker,
    "tpa": tpa,
    "mfa": mfa,
}

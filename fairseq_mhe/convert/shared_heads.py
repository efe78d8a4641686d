"""CTranslate2's multi-query layouts: keys and values that a model's heads share are stored once.

Its Transformer specification has two of them for decoder-only language models, of which no
converter of its own makes use in an encoder-decoder model. Seen with 4.8 (docs/checkpoints.md has
the measurements):

- ``num_heads_kv``: exact at all places, with padding and beams. Weights shrink; what is cached does
  not.
- ``multi_query``, which keeps one head in the cache: exact in the decoder's self-attention; wrong
  in the cross-attention with a beam, and an error in the encoder.
"""

from typing import Any

import numpy as np
from ctranslate2.converters import FairseqConverter
from ctranslate2.specs import attention_spec


class SharedHeadsConverter(FairseqConverter):
    """CTranslate2's own converter, after which equal key and value heads are kept once."""

    def _load(self) -> Any:
        spec = super()._load()
        for side in (spec.encoder, spec.decoder):
            heads = int(side.num_heads)
            for layer in side.layer:
                layer.self_attention = with_shared_heads(
                    layer.self_attention, heads, cached=side is spec.decoder
                )
                if hasattr(layer, "attention"):
                    layer.attention = with_shared_heads(layer.attention, heads)
        return spec


class _MultiQuerySpec(attention_spec.MultiHeadAttentionSpec):
    """A self-attention of one key and value head, which caches one."""

    def __init__(self) -> None:
        super().__init__(self_attention=True)
        self.multi_query = True


def with_shared_heads(full: Any, heads: int, cached: bool = False) -> Any:
    """An attention of ``heads`` key and value heads with as few as give the same output.

    ``cached``: it is the decoder's self-attention.
    """
    fused = len(full.linear) == 2  # in self-attention: query, key and value in one
    first, *rest = full.linear[:-1]
    query, key, value = _split(first, 3) if fused else [*_split(first, 1), *_split(rest[0], 2)]
    (output,) = _split(full.linear[-1], 1)
    kept = _distinct_heads(heads, *key, value[0])
    if kept == heads:
        return full
    if cached and kept == 1:
        narrow = _MultiQuerySpec()
    else:
        narrow = attention_spec.MultiHeadAttentionSpec(self_attention=fused, num_heads_kv=kept)
    narrow.layer_norm = full.layer_norm
    narrow.queries_scale = full.queries_scale
    same = _first_of_group(heads, kept)
    own = np.unique(same)
    kept_key, kept_value = ([_rows(x, heads)[own] for x in pair] for pair in (key, value))
    if fused:
        _join(narrow.linear[0], query, kept_key, kept_value)
    else:
        _join(narrow.linear[0], query)
        _join(narrow.linear[1], kept_key, kept_value)
    # Rows of attention weights sum to 1: what value biases differ by goes through the output into
    # its bias.
    values = _rows(value[1], heads)  # (n, d)
    moved = output[0] @ (values - values[same]).reshape(-1)
    _join(narrow.linear[-1], (output[0], output[1] + moved))
    return narrow


def _split(linear: Any, parts: int) -> list[Any]:
    """Weight and bias of each of several projections that lie one below the other."""
    arrays = [
        x if isinstance(x, np.ndarray) else x.numpy() for x in (linear.weight, linear.bias)
    ]
    return [*zip(*(np.split(x, parts) for x in arrays), strict=True)]


def _join(into: Any, *projections: Any) -> None:
    """Lay projections, pairs of weight and bias, one below the other."""
    weights, biases = zip(*projections, strict=True)
    into.weight = np.concatenate([w.reshape(-1, w.shape[-1]) for w in weights]).astype(
        np.float32
    )
    into.bias = np.concatenate([b.reshape(-1) for b in biases]).astype(np.float32)


def _distinct_heads(heads: int, *rows: Any) -> int:
    """The least number of key/value heads: groups of neighbours are equal in all ``rows``."""
    each = [_rows(x, heads) for x in rows]  # (n, d, ...)
    for kept in range(1, heads):
        same = _first_of_group(heads, kept)
        if heads % kept == 0 and all(np.array_equal(x, x[same]) for x in each):
            return kept
    return heads


def _first_of_group(heads: int, kept: int) -> Any:
    """(n,): the head that stands for each, where groups of neighbours share one."""
    group = heads // kept
    return np.arange(heads) // group * group


def _rows(x: Any, heads: int) -> Any:
    """(n d, ...) -> (n, d, ...)."""
    return x.reshape(heads, -1, *x.shape[1:])

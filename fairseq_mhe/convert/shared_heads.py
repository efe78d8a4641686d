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
from ctranslate2.specs import attention_spec, common_spec


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
    query, key, value = _projections(full)
    output = full.linear[-1]
    kept = _distinct_heads(heads, key.weight, key.bias, value.weight)
    if kept == heads:
        return full
    first = _first_of_group(heads, kept)
    values = value.bias.reshape(heads, -1)  # (n, d)
    # Rows of attention weights sum to 1: what value biases differ by goes through the output into
    # its bias.
    moved = output.weight @ (values - values[first]).reshape(-1)

    fused = len(full.linear) == 2  # in self-attention: query, key and value in one
    if cached and kept == 1:
        narrow = _MultiQuerySpec()
    else:
        narrow = attention_spec.MultiHeadAttentionSpec(self_attention=fused, num_heads_kv=kept)
    narrow.layer_norm = full.layer_norm
    narrow.queries_scale = full.queries_scale
    own = np.unique(first)
    kept_key, kept_value = (
        _linear(_rows(x.weight, heads)[own], _rows(x.bias, heads)[own]) for x in (key, value)
    )
    if fused:
        _fuse(narrow.linear[0], (query, kept_key, kept_value))
    else:
        _fuse(narrow.linear[0], (query,))
        _fuse(narrow.linear[1], (kept_key, kept_value))
    _fuse(narrow.linear[-1], (_linear(output.weight, output.bias + moved),))
    return narrow


def _projections(full: Any) -> list[Any]:
    """Query, key and value: fused in one in self-attention, query apart in cross-attention."""
    if len(full.linear) == 2:
        return _split(full.linear[0], 3)
    return [full.linear[0], *_split(full.linear[1], 2)]


def _split(linear: Any, parts: int) -> list[Any]:
    weights, biases = (np.split(_array(x), parts) for x in (linear.weight, linear.bias))
    return [_linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]


def _distinct_heads(heads: int, *rows: Any) -> int:
    """The least number of key/value heads: groups of neighbours are equal in all ``rows``."""
    each = [_rows(x, heads) for x in rows]  # (n, d, ...)
    for kept in range(1, heads):
        if heads % kept:
            continue
        first = _first_of_group(heads, kept)
        if all(np.array_equal(x, x[first]) for x in each):
            return kept
    return heads


def _first_of_group(heads: int, kept: int) -> Any:
    """(n,): the head that stands for each, where groups of neighbours share one."""
    group = heads // kept
    return np.arange(heads) // group * group


def _rows(x: Any, heads: int) -> Any:
    """(n d, ...) -> (n, d, ...)."""
    array = _array(x)
    return array.reshape(heads, -1, *array.shape[1:])


def _linear(weight: Any, bias: Any) -> Any:
    made = common_spec.LinearSpec()
    made.weight, made.bias = (np.ascontiguousarray(x, dtype=np.float32) for x in (weight, bias))
    return made


def _fuse(into: Any, linears: tuple[Any, ...]) -> None:
    """Lay projections one below the other."""
    weights, biases = (
        [_array(getattr(linear, name)) for linear in linears] for name in ("weight", "bias")
    )
    into.weight = np.concatenate([w.reshape(-1, w.shape[-1]) for w in weights])
    into.bias = np.concatenate([b.reshape(-1) for b in biases])


def _array(x: Any) -> Any:
    """What a specification holds, as numpy."""
    return x if isinstance(x, np.ndarray) else x.numpy()

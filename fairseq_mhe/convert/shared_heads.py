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
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec


class SharedHeadsConverter(FairseqConverter):
    """CTranslate2's own converter, after which equal key and value heads are kept once."""

    def _load(self) -> Any:
        spec = super()._load()
        for side in (spec.encoder, spec.decoder):
            heads, cached = int(side.num_heads), side is spec.decoder
            for layer in side.layer:
                layer.self_attention = with_shared_heads(layer.self_attention, heads, cached)
                if hasattr(layer, "attention"):
                    layer.attention = with_shared_heads(layer.attention, heads)
        return spec


class _MultiQuerySpec(MultiHeadAttentionSpec):
    """A self-attention of one key and value head, which caches one."""

    def __init__(self) -> None:
        super().__init__(self_attention=True)
        self.multi_query = True


def with_shared_heads(full: Any, heads: int, cached: bool = False) -> Any:
    """An attention of ``heads`` key and value heads with as few as give the same output.

    ``cached``: it is the decoder's self-attention.
    """
    fused = len(full.linear) == 2  # in self-attention: query, key and value in one
    parts = (3, 1) if fused else (1, 2, 1)
    projections = [
        part
        for linear, count in zip(full.linear, parts, strict=True)
        for part in _split(linear, count)
    ]
    query, (key, key_bias), (value, value_bias), (output, output_bias) = projections
    key, key_bias, value, value_bias = (
        x.reshape(heads, -1, *x.shape[1:]) for x in (key, key_bias, value, value_bias)
    )  # (n, d, C), (n, d)
    kept = _distinct_heads(key, key_bias, value)
    if kept == heads:
        return full
    if cached and kept == 1:
        narrow = _MultiQuerySpec()
    else:
        narrow = MultiHeadAttentionSpec(self_attention=fused, num_heads_kv=kept)
    narrow.layer_norm, narrow.queries_scale = full.layer_norm, full.queries_scale
    first = _first_of_group(heads, kept)
    own = np.unique(first)
    shared = [(key[own], key_bias[own]), (value[own], value_bias[own])]
    # Rows of attention weights sum to 1: what value biases differ by goes through the output into
    # its bias.
    moved = output @ (value_bias - value_bias[first]).reshape(-1)
    joined = [[query, *shared]] if fused else [[query], shared]
    joined.append([(output, output_bias + moved)])
    for linear, several in zip(narrow.linear, joined, strict=True):
        weights = [weight.reshape(-1, weight.shape[-1]) for weight, _ in several]
        linear.weight = np.concatenate(weights).astype(np.float32)
        biases = [bias.reshape(-1) for _, bias in several]
        linear.bias = np.concatenate(biases).astype(np.float32)
    return narrow


def _split(linear: Any, parts: int) -> list[Any]:
    """Weight and bias of each of several projections that lie one below the other."""
    both = (x if isinstance(x, np.ndarray) else x.numpy() for x in (linear.weight, linear.bias))
    return [*zip(*(np.split(x, parts) for x in both), strict=True)]


def _distinct_heads(*rows: Any) -> int:
    """The least number of heads: groups of neighbours are equal in all ``rows`` (n, d, ...)."""
    heads = len(rows[0])
    for kept in range(1, heads):
        first = _first_of_group(heads, kept)
        if heads % kept == 0 and all(np.array_equal(x, x[first]) for x in rows):
            return kept
    return heads


def _first_of_group(heads: int, kept: int) -> Any:
    """(n,): the head that stands for each, where groups of neighbours share one."""
    group = heads // kept
    return np.arange(heads) // group * group

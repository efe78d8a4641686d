"""A converter to CTranslate2's multi-query layouts, which store equal key and value heads once.

CTranslate2's own converters use these layouts only for decoder-only models. In version 4.8:

- ``num_heads_kv`` is exact at all places. It shrinks the weights, but not the cache.
- ``multi_query`` caches one head. It is exact in the decoder's self-attention, wrong in the
  cross-attention with a beam, and an error in the encoder.
"""

from typing import Any

import numpy as np
from ctranslate2.converters import FairseqConverter


class SharedHeadsConverter(FairseqConverter):
    """CTranslate2's converter for fairseq, but with equal key and value heads stored once."""

    def _load(self) -> Any:
        spec = super()._load()
        for layer in spec.encoder.layer:
            share_heads(layer.self_attention, spec.encoder.num_heads)
        for layer in spec.decoder.layer:
            share_heads(layer.self_attention, spec.decoder.num_heads)
            share_heads(layer.attention, spec.decoder.num_heads)
            attributes = vars(layer.self_attention)
            if attributes.get("num_heads_kv") == 1:
                del attributes["num_heads_kv"]
                attributes["multi_query"] = True
        return spec


def share_heads(attention: Any, num_heads: int) -> None:
    """Store equal key and value heads of CTranslate2's ``attention`` once.

    The last projection but one ends in n d rows for keys and as many for values; in self-attention
    those for queries come first. The last projection is the output's.
    """
    projection, output = attention.linear[-2:]
    width = output.weight.shape[1]  # n d
    queries = len(projection.weight) - 2 * width  # rows
    weights = projection.weight[queries:].reshape(2, num_heads, -1)  # (2, n, d in)
    biases = projection.bias[queries:].reshape(2, num_heads, -1)  # (2, n, d)
    kv_heads = _distinct_heads(np.concatenate([*weights, biases[0]], axis=1))
    if kv_heads == num_heads:
        return
    # A group keeps its first head's value bias. As attention weights sum to 1, the difference of
    # another head's bias adds a constant to the output, which goes into the output's bias.
    values = biases[1].reshape(kv_heads, -1, biases.shape[2])  # (g, n / g, d)
    output.bias = output.bias + output.weight @ (values - values[:, :1]).ravel()
    first = slice(None, None, num_heads // kv_heads)  # head of each group
    for name, heads in (("weight", weights), ("bias", biases)):
        rows = getattr(projection, name)
        shared = heads[:, first].reshape(-1, *rows.shape[1:])  # (2 g d, in), (2 g d,)
        setattr(projection, name, np.concatenate([rows[:queries], shared]))
    # Not setattr: the specification refuses new attributes.
    vars(attention)["num_heads_kv"] = np.int32(kv_heads)


def _distinct_heads(heads: Any) -> int:
    """Return the least number of groups of adjacent ``heads`` (n, numbers) that are equal."""
    count = len(heads)
    for groups in range(1, count):
        if count % groups == 0:
            grouped = heads.reshape(groups, count // groups, -1)
            if (grouped == grouped[:, :1]).all():
                return groups
    return count

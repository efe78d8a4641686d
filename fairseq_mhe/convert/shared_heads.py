"""A converter to CTranslate2's multi-query layouts, which store equal key and value heads once.

CTranslate2's own converters use these layouts only for decoder-only models. In version 4.8:

- ``num_heads_kv`` is exact at all places. It shrinks the weights, but not the cache.
- ``multi_query`` caches one head. It is exact in the decoder's self-attention, wrong in the
  cross-attention with a beam, and an error in the encoder.
"""

from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ctranslate2.converters import FairseqConverter, fairseq
from torch import nn

_set_all_heads = fairseq.set_multi_head_attention


class SharedHeadsConverter(FairseqConverter):
    """CTranslate2's converter for fairseq, but with equal key and value heads stored once."""

    def _load(self) -> Any:
        with patch.object(fairseq, "set_multi_head_attention", set_shared_heads):
            spec = super()._load()
        for layer in spec.decoder.layer:
            attributes = vars(layer.self_attention)
            if attributes.get("num_heads_kv") == 1:
                del attributes["num_heads_kv"]
                attributes["multi_query"] = True
        return spec


@torch.no_grad()
def set_shared_heads(spec: Any, module: Any, self_attention: bool = False) -> None:
    """Fill CTranslate2's ``spec`` from fairseq's attention ``module``, merging its equal heads."""
    heads = module.num_heads
    kv_heads = _distinct_kv_heads(module)
    if kv_heads < heads:
        groups = (kv_heads, heads // kv_heads, -1)
        # A group keeps its first head's value bias. As attention weights sum to 1, the difference
        # of another head's bias adds a constant to the output, which goes into the output's bias.
        values = module.v_proj.bias.unflatten(0, groups)  # (g, n / g, d)
        differences = (values - values[:, :1]).flatten()  # (n d,)
        module.out_proj.bias += module.out_proj.weight @ differences
        for layer in (module.k_proj, module.v_proj):
            for name, parameter in layer.named_parameters():
                rows = parameter.unflatten(0, groups)[:, 0].flatten(0, 1)
                setattr(layer, name, nn.Parameter(rows))
        # Not setattr: the specification refuses new attributes.
        vars(spec)["num_heads_kv"] = np.int32(kv_heads)
    _set_all_heads(spec, module, self_attention)


def _distinct_kv_heads(module: Any) -> int:
    """Return the least number of groups of adjacent heads that are equal but for value biases."""
    heads = module.num_heads
    shared = module.k_proj.weight, module.k_proj.bias, module.v_proj.weight
    for kv_heads in range(1, heads):
        if heads % kv_heads == 0:
            groups = (kv_heads, heads // kv_heads, -1)
            parts = [parameter.unflatten(0, groups) for parameter in shared]
            if all(part.eq(part[:, :1]).all() for part in parts):
                return kv_heads
    return heads

"""CTranslate2's multi-query layouts: keys and values that a model's heads share are stored once.

Its own converters use the two for decoder-only language models alone. Seen with 4.8:

- ``num_heads_kv``: exact at all places; weights shrink, what is cached does not.
- ``multi_query``, which keeps one head in the cache: exact in the decoder's self-attention; wrong
  in the cross-attention with a beam, and an error in the encoder.
"""

from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ctranslate2.converters import FairseqConverter, fairseq
from torch import nn

_whole = fairseq.set_multi_head_attention


class SharedHeadsConverter(FairseqConverter):
    """CTranslate2's own converter, but equal key and value heads are stored once."""

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
    """Set CTranslate2's specification from fairseq's attention, whose equal heads become one."""
    heads = module.num_heads
    kept, first = _distinct_heads(module)
    if kept < heads:
        # Rows of attention weights sum to 1: what value biases differ by goes through the output
        # into its bias.
        values = module.v_proj.bias.unflatten(0, (heads, -1))  # (n, d)
        differences = (values - values[first]).flatten().numpy()
        module.out_proj.bias += torch.tensor(module.out_proj.weight.numpy() @ differences)
        for layer in (module.k_proj, module.v_proj):
            for name, parameter in layer.named_parameters():
                rows = parameter.unflatten(0, (heads, -1))[first[:: heads // kept]]
                setattr(layer, name, nn.Parameter(rows.flatten(0, 1)))
        # Past the specification's own attributes, which are frozen.
        vars(spec)["num_heads_kv"] = np.int32(kept)
    _whole(spec, module, self_attention)


def _distinct_heads(module: Any) -> tuple[int, list[int]]:
    """The least number of key and value heads, and the head that stands for each (n,).

    Groups of neighbours are equal but for the biases of values.
    """
    heads = module.num_heads
    key, value = module.k_proj, module.v_proj
    for kept in range(1, heads):
        if heads % kept == 0:
            first = [head - head % (heads // kept) for head in range(heads)]
            rows = [
                weight.unflatten(0, (heads, -1))
                for weight in (key.weight, key.bias, value.weight)
            ]
            if all(torch.equal(each, each[first]) for each in rows):
                return kept, first
    return heads, [*range(heads)]

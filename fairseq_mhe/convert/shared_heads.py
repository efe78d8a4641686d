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
    kept = _distinct_heads(module)
    if kept < heads:
        groups = (kept, heads // kept, -1)
        # Rows of attention weights sum to 1: what value biases differ by goes through the output
        # into its bias.
        values = module.v_proj.bias.unflatten(0, groups)  # (g, n / g, d)
        differences = (values - values[:, :1]).flatten().numpy()
        module.out_proj.bias += torch.tensor(module.out_proj.weight.numpy() @ differences)
        for layer in (module.k_proj, module.v_proj):
            for name, parameter in layer.named_parameters():
                rows = parameter.unflatten(0, groups)[:, 0].flatten(0, 1)
                setattr(layer, name, nn.Parameter(rows))
        # Past the specification's own attributes, which are frozen.
        vars(spec)["num_heads_kv"] = np.int32(kept)
    _whole(spec, module, self_attention)


def _distinct_heads(module: Any) -> int:
    """The least number of groups of neighbours that are equal but for the biases of values."""
    heads = module.num_heads
    shared = module.k_proj.weight, module.k_proj.bias, module.v_proj.weight
    for kept in range(1, heads):
        if heads % kept == 0:
            groups = (kept, heads // kept, -1)
            parts = [parameter.unflatten(0, groups) for parameter in shared]
            if all(part.eq(part[:, :1]).all() for part in parts):
                return kept
    return heads

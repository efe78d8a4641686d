"""What a built model costs: parameters, bytes of key/value cache in decoding, multiply-adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fairseq_mhe.attention import Attention
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.options import PLACES


def attention_parameters(model: nn.Module) -> int:
    """Parameters of all attention sublayers (encoder, decoder, cross), the paper's #Params."""
    return sum(total_parameters(attention) for _, _, attention in sublayers(model))


def total_parameters(model: nn.Module) -> int:
    """All parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters())


def embedding_parameters(model: Any) -> int:
    """Parameters of the token embedding that reads: the encoder's, or that of a lone decoder."""
    side = getattr(model, "encoder", None) or model.decoder
    stack = getattr(side, "sentence_encoder", side)
    return total_parameters(stack.embed_tokens)


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of key/value cache while decoding."""

    per_target_token: int  # generated so far, of each hypothesis (decoder self-attention)
    per_source_token: int  # of each sentence, whatever the beam (cross-attention)

    def per_sentence(self, source_tokens: int, target_tokens: int, beam: int = 1) -> int:
        """Held for a sentence after ``target_tokens`` steps with ``beam`` hypotheses."""
        own = self.per_target_token * target_tokens * beam
        return own + self.per_source_token * source_tokens


def cache_bytes(model: nn.Module) -> CacheBytes:
    """The cache of a model in float32."""
    cached = dict.fromkeys(PLACES, 0)
    for _, place, attention in sublayers(model):
        cached[place] += 4 * attention.cached_values
    return CacheBytes(cached["decoder"], cached["cross"])


@torch.no_grad()
def attention_work(attention: Attention) -> tuple[int, int, int]:
    """Multiply-adds of projections of a query and of a key, and of a pair's scores and sums.

    Elementwise work does not count, nor does work on weights once a call (sha sums W_O's rows).
    """
    like = next(attention.parameters())
    x = like.new_zeros(1, 1, attention.embed_dim)
    key = like.new_zeros(1, 1, attention.kdim)
    value = like.new_zeros(1, 1, attention.vdim)
    with FlopCounterMode(display=False) as of_key:
        _, values = attention.keys_values(key, value)  # (1, Hv, 1, dv)
    with FlopCounterMode(display=False) as of_query:
        queries = attention.queries(x)  # (1, H, 1, dk); H is 1 where all heads are one
        heads = queries.new_zeros(*queries.shape[:3], values.size(3))
        attention.merge(heads, None)
    query_work = of_query.get_total_flops() // 2  # a multiply-add is two operations
    key_work = of_key.get_total_flops() // 2
    pair_work = queries.numel() + heads.numel()
    return query_work, key_work, pair_work


@dataclass(frozen=True)
class Cost:
    """What a part of a model costs."""

    parameters: int = 0
    source: float = 0  # multiply-adds a source token
    target: float = 0  # and a target token of each hypothesis

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.parameters + other.parameters,
            self.source + other.source,
            self.target + other.target,
        )


def costs(model: nn.Module, source: int, past: float) -> dict[str, Cost]:
    """The cost of the attention in each place (of ``PLACES``), and of all else under "rest".

    Each token attends to ``source`` source tokens, and a target token to ``past`` target tokens: of
    T, (T + 1) / 2 on average in decoding, T in training, where a mask hides what is computed.
    """
    parts = dict.fromkeys((*PLACES, "rest"), Cost())
    inside: set[nn.Module] = set()
    for _, place, attention in sublayers(model):
        inside.update(attention.modules())
        query, key, pair = attention_work(attention)
        if place == "encoder":
            part = Cost(source=query + key + pair * source)
        elif place == "decoder":
            part = Cost(target=query + key + pair * past)
        else:  # keys and values of the encoder's output are computed once a sentence
            part = Cost(source=key, target=query + pair * source)
        parts[place] += part + Cost(total_parameters(attention))
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module not in inside:
            side = "source" if name.startswith("encoder.") else "target"
            parts["rest"] += Cost(**{side: module.weight.numel()})
    parts["rest"] += Cost(total_parameters(model) - attention_parameters(model))
    return parts

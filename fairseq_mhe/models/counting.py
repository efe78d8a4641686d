"""The costs of a model: parameters, bytes of key/value cache in decoding, multiply-adds."""

from dataclasses import astuple, dataclass
from operator import add
from typing import Any

import torch
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.modules.adaptive_softmax import TiedLinear
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fairseq_mhe.attention import Attention
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.options import PLACES


def attention_parameters(model: nn.Module) -> int:
    """Count the parameters of all attention (encoder, decoder, cross), the paper's #Params."""
    return sum(total_parameters(attention) for _, _, attention in sublayers(model))


def total_parameters(model: nn.Module) -> int:
    """Count all parameters; shared ones count once."""
    return sum(p.numel() for p in model.parameters())


def embedding_parameters(model: Any) -> int:
    """Count the parameters of the input embedding: the encoder's, or a lone decoder's."""
    side = getattr(model, "encoder", None) or model.decoder
    stack = getattr(side, "sentence_encoder", side)
    return total_parameters(stack.embed_tokens)


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of key/value cache in decoding."""

    per_target_token: int  # for each hypothesis (decoder self-attention)
    per_source_token: int  # for each sentence, whatever the beam (cross-attention)

    def per_sentence(self, source_tokens: int, target_tokens: int, beam: int = 1) -> int:
        """Return the bytes for a sentence after ``target_tokens`` steps of ``beam`` hypotheses."""
        self_attention = self.per_target_token * target_tokens * beam
        return self_attention + self.per_source_token * source_tokens


def cache_bytes(model: nn.Module) -> CacheBytes:
    """Return the size of a model's cache in float32."""
    sizes = dict.fromkeys(PLACES, 0)
    for _, place, attention in sublayers(model):
        sizes[place] += 4 * attention.cached_values
    return CacheBytes(sizes["decoder"], sizes["cross"])


@torch.no_grad()
def attention_work(attention: Attention) -> tuple[int, int, int]:
    """Return the multiply-adds per query, per key, and per pair of both (score and weighted sum).

    Elementwise work and work on weights alone (sha sums the rows of W_O once a call) do not count.
    """
    weight = next(attention.parameters())
    x = weight.new_zeros(1, 1, attention.embed_dim)
    key = weight.new_zeros(1, 1, attention.kdim)
    value = weight.new_zeros(1, 1, attention.vdim)
    with FlopCounterMode(display=False) as key_counter:
        _, values = attention.keys_values(key, value)  # (1, Hv, 1, dv)
    with FlopCounterMode(display=False) as query_counter:
        queries = attention.queries(x)  # (1, H, 1, dk); H is 1 if all heads share a query
        heads = queries.new_zeros(*queries.shape[:3], values.size(3))
        attention.merge(heads, None)
    query_work = query_counter.get_total_flops() // 2  # a multiply-add is two operations
    key_work = key_counter.get_total_flops() // 2
    pair_work = queries.numel() + heads.numel()
    return query_work, key_work, pair_work


@dataclass(frozen=True)
class Cost:
    """The cost of a part of a model."""

    parameters: int = 0
    source: float = 0  # multiply-adds for each source token
    target: float = 0  # multiply-adds for each target token of each hypothesis

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(add, astuple(self), astuple(other)))


def costs(model: nn.Module, source: int, past: float) -> dict[str, Cost]:
    """Return the cost of the attention at each place (of ``PLACES``), and of all else as "rest".

    Each token attends to ``source`` source tokens, and a target token to ``past`` target tokens: of
    T tokens (T + 1) / 2 on average in decoding, T in training, which computes masked scores, too.
    """
    parts = dict.fromkeys((*PLACES, "rest"), Cost())
    in_attention: set[nn.Module] = set()
    for _, place, attention in sublayers(model):
        in_attention.update(attention.modules())
        query, key, pair = attention_work(attention)
        if place == "encoder":
            part = Cost(source=query + key + pair * source)
        elif place == "decoder":
            part = Cost(target=query + key + pair * past)
        else:  # decoding projects the encoder's output to keys and values once per sentence
            part = Cost(source=key, target=query + pair * source)
        parts[place] += part + Cost(total_parameters(attention))
    for name, module in model.named_modules():
        multiplies = isinstance(module, (nn.Linear, TiedLinear, RobertaLMHead))
        if multiplies and module not in in_attention:
            side = "source" if name.startswith("encoder.") else "target"
            parts["rest"] += Cost(**{side: module.weight.numel()})
    parts["rest"] += Cost(total_parameters(model) - attention_parameters(model))
    return parts

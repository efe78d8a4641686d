"""What a built model costs: parameters of its attention and in all, and bytes of key/value cache while decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from fairseq_mhe.attention import Attention


def attention_parameters(model: nn.Module) -> int:
    """Parameters of the attention sublayers (encoder self, decoder self, cross), as the paper's #Params counts them."""
    return sum(p.numel() for attention in _attentions(model) for p in attention.parameters())


def total_parameters(model: nn.Module) -> int:
    """All parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters())


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of key/value cache while decoding.

    ``per_target_token``: for each token generated so far, of each hypothesis (decoder
    self-attention).
    ``per_source_token``: for each source token of each sentence, whatever the beam
    (cross-attention).
    """

    per_target_token: int
    per_source_token: int

    def per_sentence(self, source_tokens: int, target_tokens: int, beam: int = 1) -> int:
        """Bytes held for one sentence after ``target_tokens`` steps of a search with ``beam`` hypotheses."""
        return self.per_source_token * source_tokens + self.per_target_token * target_tokens * beam


def cache_bytes(model: nn.Module, bytes_per_value: int = 4) -> CacheBytes:
    """The cache of a model whose numbers take ``bytes_per_value`` (4: float32, 2: half precision)."""
    decoder = list(_attentions(model.get_submodule("decoder")))
    target, source = (
        sum(
            attention.cached_values
            for attention in decoder
            if attention.self_attention is on_target
        )
        for on_target in (True, False)
    )
    return CacheBytes(target * bytes_per_value, source * bytes_per_value)


def _attentions(model: nn.Module) -> Iterator[Attention]:
    return (module for module in model.modules() if isinstance(module, Attention))

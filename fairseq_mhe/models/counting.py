"""The costs of a model: parameters, bytes of key/value cache in decoding, multiply-adds.

Nothing here imports fairseq or torch's compiler, each of which takes a second.
"""

from dataclasses import astuple, dataclass
from operator import add, sub
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fairseq_mhe.attention import Attention
from fairseq_mhe.models.options import PLACES, sublayers


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


class MultiplyAdds(TorchDispatchMode):
    """Counts the multiply-adds of all products, by torch's formulas for its FlopCounterMode."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch imports its compiler to keep it away from this class.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        operations = flop_registry.get(func.overloadpacket)
        if operations is not None:  # a multiply-add is two operations
            self.count += operations(*args, **(kwargs or {}), out_val=result) // 2
        return result


@torch.no_grad()
def attention_work(attention: Attention) -> tuple[int, ...]:
    """Return the multiply-adds per query, per key, and per pair of both (score and weighted sum).

    Elementwise work does not count, nor does work on weights alone (tucker's matrices of heads).
    """
    weight = next(attention.parameters())

    def zeros(positions: int, width: int) -> Tensor:
        return weight.new_zeros(positions, 1, width)

    def count(positions: int) -> tuple[int, ...]:
        """Count the multiply-adds of so many queries, of as many keys, and of one query's pairs."""
        with MultiplyAdds() as of_queries:
            query = zeros(positions, attention.embed_dim)
            queries = attention.queries(query)  # (1, H, T, dk)
        key, value = zeros(positions, attention.kdim), zeros(positions, attention.vdim)
        with MultiplyAdds() as of_keys:
            keys, values = attention.keys_values(key, value)
        with MultiplyAdds() as of_pairs:
            attended = attention.attend(queries[:, :, :1], keys, values)
        heads = attended.heads.expand(-1, -1, positions, -1)  # (1, H, T, dv)
        with MultiplyAdds() as of_output:
            attention.merge(heads)
        return of_queries.count + of_output.count, of_keys.count, of_pairs.count

    # The difference leaves out what a call computes from weights alone.
    return tuple(map(sub, count(3), count(2)))


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
        weight = getattr(module, "weight", None)
        if weight is None or weight.dim() != 2 or isinstance(module, nn.Embedding):
            continue
        if module not in in_attention:
            side = "source" if name.startswith("encoder.") else "target"
            parts["rest"] += Cost(**{side: weight.numel()})
    parts["rest"] += Cost(total_parameters(model) - attention_parameters(model))
    return parts

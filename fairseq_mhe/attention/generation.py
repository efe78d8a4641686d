"""The form of attention sublayers in generation: plain heads with one projection of the input."""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.cache import KeyValueCache


class GenerationAttention(Attention):
    """The `PlainHeads` of a trained layer: H query heads, Hk key heads and Hv value heads.

    The weights contain the scale of the scores and whatever a kind does to its heads. So MHE
    decodes as multi-query attention does. There are no key biases, which softmax ignores. The bias
    of the output takes those of the values, since weights sum to 1 without dropout.

    Args:
        layer: a sublayer that has plain heads.
        of_itself: the query's input is that of keys and values, too: one product makes all three.
    """

    not_foldable_because = "it is made for generation already"

    def __init__(self, layer: Attention, of_itself: bool) -> None:
        super().__init__(
            layer.embed_dim,
            layer.num_heads,
            kdim=layer.kdim,
            vdim=layer.vdim,
            kind=layer.kind,
            head_dim=layer.head_dim,
        )
        heads = layer.folded().scaled(1.0)
        self.scaling = heads.scale
        self.of_itself = of_itself
        self.keys_are_values = heads.value is heads.key
        self.head_counts = len(heads.query), len(heads.key), len(heads.value)
        weights = [
            heads.query.flatten(0, 1),
            heads.key.flatten(0, 1),
        ]  # (H dk, C), (Hk dk, M)
        if not self.keys_are_values:
            weights.append(heads.value.flatten(0, 1))  # (Hv dv, M)
        self.widths = [len(weight) for weight in weights]
        bias = heads.query_bias.flatten()  # (H dk,)
        output = heads.output.transpose(0, 1).flatten(1)  # (C, H dv)
        output_bias = output @ heads.value_bias.flatten() + heads.output_bias  # (C,)
        like = next(layer.parameters())
        if of_itself:
            bias = torch.cat((bias, bias.new_zeros(sum(self.widths) - len(bias))))
            self.in_proj = _linear(torch.cat(weights), bias, like)
        else:
            self.q_proj = _linear(weights[0], bias, like)
            self.k_proj = _linear(weights[1], None, like)
            if not self.keys_are_values:
                self.v_proj = _linear(weights[2], None, like)
        self.out_proj = _linear(output, output_bias, like)

    def build(self) -> None:
        """Create no parameters: the constructor computes them from those of another layer."""

    def project_inputs(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        padding: Tensor | None,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor, Any, Any]:
        """Return queries (B, H, T, dk), keys (B, Hk, S, dk) and values (B, Hv, S, dv)."""
        if self.of_itself:
            parts = self.in_proj(query).split(self.widths, dim=2)
        elif key is None:
            return split_heads(self.q_proj(query), self.head_counts[0]), None, None
        elif self.keys_are_values:
            parts = self.q_proj(query), self.k_proj(key)
        else:
            parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        queries, keys, *values = map(split_heads, parts, self.head_counts)
        return queries, keys, values[0] if values else keys


def use_generation_form(model: nn.Module) -> None:
    """Replace each attention sublayer that has plain heads by its `GenerationAttention`.

    Others generate by their hooks, and so do those that drop weights (--retain-dropout).
    """
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if not isinstance(layer, Attention) or layer.why_not_foldable():
                continue
            if not (layer.dropout_in_inference and layer.dropout):
                of_itself = name != "encoder_attn"
                setattr(parent, name, GenerationAttention(layer, of_itself))


def _linear(weight: Tensor, bias: Tensor | None, like: Tensor) -> nn.Linear:
    """Return a layer (in -> out) of the type and device of ``like``, without a bias of zeros."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")
    layer.weight = nn.Parameter(weight.to(like), requires_grad=False)
    if bias is not None and bias.any():
        layer.bias = nn.Parameter(bias.to(like), requires_grad=False)
    return layer

"""The form of attention sublayers in generation: plain heads with one projection of the input."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fairseq_mhe.attention.base import Attention, split_heads


class GenerationAttention(Attention):
    """The `PlainHeads` of a trained layer: H query heads, Hk key heads and Hv value heads.

    The weights contain the scale of the scores and whatever a kind does to its heads. So MHE
    decodes as multi-query attention does. The bias of the output takes those of the values, since
    weights sum to 1 without dropout. Keys that are the input itself, as in `el`, cost no product.

    Args:
        layer: a sublayer that has plain heads.
        of_itself: the query's input is that of keys and values, too: one product makes all three.
        shared_query: if heads share W_Q, do not multiply it by each head's factors beforehand. A
            CPU takes longer for a product of n d columns than for one of d and a multiplication,
            a GPU as long as for one of d.
    """

    not_foldable_because = "it is made for generation already"

    #: One projection to queries, keys and values; None: each has a projection of its own.
    in_proj: nn.Linear | None
    #: Where heads share a query, what makes each head's own of it.
    query_factors: Tensor | None  # (H, 1, dk)
    query_bias: Tensor | None  # (H, 1, dk)

    def __init__(self, layer: Attention, of_itself: bool, shared_query: bool) -> None:
        super().__init__(
            layer.embed_dim,
            layer.num_heads,
            kdim=layer.kdim,
            vdim=layer.vdim,
            kind=layer.kind,
            head_dim=layer.head_dim,
        )
        heads = layer.folded().scaled(1.0)
        if not shared_query:
            heads = heads.with_own_queries()
        self.scaling = heads.scale
        self.keys_are_values = heads.value is heads.key
        parts = [heads.query, heads.key]  # (Hq, dk, C), (Hk, dk, M)
        if not self.keys_are_values:
            parts.append(heads.value)  # (Hv, dv, M)
        self.head_counts = [len(part) for part in parts]
        weights = [part.flatten(0, 1) for part in parts]  # (heads width, in) each
        self.widths = [len(weight) for weight in weights]
        like = next(layer.parameters())
        shared = len(heads.query) < len(heads.output)
        factors = heads.query_factors
        added = shared and (factors is None or bool(heads.query_bias.any()))
        self.query_factors = None if factors is None else _parameter(factors, like)
        self.query_bias = _parameter(heads.query_bias, like) if added else None
        bias = None if shared else heads.query_bias.flatten()  # (H dk,)
        self.in_proj = None
        if of_itself and not _is_identity(weights[1]):
            self.in_proj = _linear(torch.cat(weights), bias, like)
        else:
            self.q_proj = _linear(weights[0], bias, like)
            self.k_proj = _linear(weights[1], None, like)
            if not self.keys_are_values:
                self.v_proj = _linear(weights[2], None, like)
        output = heads.output.transpose(0, 1).flatten(1)  # (C, H dv)
        output_bias = output @ heads.value_bias.flatten() + heads.output_bias  # (C,)
        self.out_proj = _linear(output, output_bias, like)

    def build(self) -> None:
        """Create no parameters: the constructor computes them from those of another layer."""

    @property
    def cached_values(self) -> int:
        """The count of numbers cached for one position: the demo shows their bytes."""
        return sum(self.widths[1:])

    def project_inputs(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, **_: Any
    ) -> tuple[Tensor, Any, Any]:
        """Return queries (B, H, T, dk), keys (B, Hk, S, dk) and values (B, Hv, S, dv)."""
        if self.in_proj is not None:
            parts = self.in_proj(query).split(self.widths, dim=2)
        elif key is None:
            return self.own_queries(self.q_proj(query)), None, None
        elif self.keys_are_values:
            parts = self.q_proj(query), self.k_proj(key)
        else:
            parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        queries, *memory = parts
        keys, *values = map(split_heads, memory, self.head_counts[1:])
        return self.own_queries(queries), keys, values[0] if values else keys

    def own_queries(self, x: Tensor) -> Tensor:
        """(T, B, Hq dk) -> (B, H, T, dk)."""
        queries = split_heads(x, self.head_counts[0])  # (B, Hq, T, dk)
        # The view has usual strides for T = 1, too, which the products keep.
        queries = queries.view(queries.shape)
        if self.query_factors is not None:
            queries = queries.contiguous() * self.query_factors
        if self.query_bias is not None:
            queries = queries.contiguous() + self.query_bias
        return queries


def use_generation_form(model: nn.Module) -> None:
    """Replace each attention sublayer that has plain heads by its `GenerationAttention`.

    Others generate by their hooks, and so do those that drop weights (--retain-dropout).
    """
    shared_query = not next(model.parameters()).is_cuda
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if not isinstance(layer, Attention) or layer.why_not_foldable():
                continue
            if not (layer.dropout_in_inference and layer.dropout):
                of_itself = name != "encoder_attn"
                fast = GenerationAttention(layer, of_itself, shared_query)
                setattr(parent, name, fast)


def _parameter(x: Tensor, like: Tensor) -> nn.Parameter:
    """(H, dk) -> (H, 1, dk), of the type and device of ``like``."""
    return nn.Parameter(x.unsqueeze(1).to(like), requires_grad=False)


def _is_identity(weight: Tensor) -> bool:
    """Return whether a product with ``weight`` (out, in) changes nothing."""
    return torch.equal(weight, torch.eye(*weight.shape).to(weight))


def _linear(weight: Tensor, bias: Tensor | None, like: Tensor) -> Any:
    """Return a projection (in -> out) of the type and device of ``like``.

    ``bias``: of the first outputs, left out if it is zero; None: of no output.
    """
    if bias is None and _is_identity(weight):
        return nn.Identity()
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")
    layer.weight = nn.Parameter(weight.to(like), requires_grad=False)
    if bias is not None and bias.any():
        bias = pad(bias, (0, outputs - len(bias)))
        layer.bias = nn.Parameter(bias.to(like), requires_grad=False)
    return layer

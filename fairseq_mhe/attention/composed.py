"""Multi-query attention whose query projection is composed of fewer numbers than it has.

Head i: softmax((X W_i) (Y W_K)^T / sqrt(d)) Y W_V, W_K and W_V shared by all heads (Shazeer 2019,
section 3); a kind says what W_1, ..., W_n in R^{C x d} are made of. They are composed once a call,
and once for all before generation, which then costs what multi-query attention does. It is
multi-query attention exactly, and folds to whatever that folds to.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.attention.base import split_heads
from fairseq_mhe.attention.descent import descend
from fairseq_mhe.attention.fitting import Fitted, Parameters, Trained
from fairseq_mhe.attention.heads import Heads, projected
from fairseq_mhe.attention.shared import SharedProjectionAttention


class ComposedQueryAttention(SharedProjectionAttention):
    """One key and one value head; the heads' queries as ``composed`` makes them."""

    start = "head"
    linear_heads = False
    #: The composed projection, once generation was prepared.
    folded_proj: nn.Linear | None

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        self.folded_proj = None

    def composed(self) -> tuple[Tensor, Tensor | None]:
        """The query projection's weight (n, d, C) and, with ``bias``, its bias (n, d)."""
        raise NotImplementedError

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d): X W_i."""
        if self.folded_proj is not None:
            return split_heads(self.folded_proj(x), self.num_heads)
        weight, bias = self.composed()
        flat = None if bias is None else bias.flatten()  # (n d,)
        return split_heads(F.linear(x, weight.flatten(0, 1), flat), self.num_heads)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Compose the query projection once for all: from here on the weights must not change."""
        super().make_generation_fast_(**kwargs)
        with torch.no_grad():
            weight, bias = self.composed()
            flat = None if bias is None else bias.flatten()  # (n d,)
            self.folded_proj = as_linear(weight.flatten(0, 1), flat)

    def train(self, mode: bool = True) -> ComposedQueryAttention:
        """Training changes the weights: what was composed of them is forgotten."""
        if mode:
            self.folded_proj = None
        return super().train(mode)

    def written_out(self) -> Heads:
        """The composed queries; the one key and the one value head in each head."""
        exact: Any = copy.deepcopy(self).double()
        with torch.no_grad():
            weight, bias = exact.composed()
        unbiased = weight.new_zeros(weight.shape[:2])
        query = (weight.detach(), unbiased if bias is None else bias.detach())
        return Heads.of(self, query, *exact.kept_projections())

    def fitted(self, trained: Trained) -> Fitted:
        """By descent, from ``near``: no decomposition composes queries."""
        return descend(self, self.near(trained), trained)

    def near(self, trained: Trained) -> Parameters:
        """Where the descent starts: the means of the heads, or as a new sublayer does."""
        try:
            return self.pooled(trained.heads)
        except ValueError:  # heads that are wider
            return copy.deepcopy(self).double().state_dict()

    def blocks(self) -> Tensor:
        """(n, C, d): what each head is merged by."""
        return self.out_proj.weight.unflatten(1, (self.num_heads, -1)).transpose(0, 1)

    def kept_weights(self) -> tuple[Tensor, Tensor]:
        """The weights (d, M) of key and value."""
        layers: tuple[Any, Any] = (self.k_proj, self.v_proj)
        return layers[0].weight, layers[1].weight

    def kept_projections(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Key and value projection, copied for every head: (n, d, M) and (n, d) each, float64."""
        layers: tuple[Any, Any] = (self.k_proj, self.v_proj)
        key, value = (projected(layer, 1, self.num_heads) for layer in layers)
        return key, value


def as_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A layer with this weight (out, in) and bias (out,), which are not trained."""
    layer = nn.Linear(weight.size(1), weight.size(0), bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def random_signs(*shape: int) -> nn.Parameter:
    """1 and -1 with equal chances."""
    return nn.Parameter(torch.randint(0, 2, shape).to(torch.get_default_dtype()) * 2 - 1)

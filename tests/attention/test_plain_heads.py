"""Which sublayers have plain heads; `test_kinds` and tests/convert compare what they compute."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS
from fairseq_mhe.attention.base import split_heads
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEMul
from fairseq_mhe.attention.plain_heads import PlainHeads
from tests.attention.conftest import make_layer
from tests.fixtures.refusals import refuses

C, N = 12, 3
TENSORS = ("query", "query_bias", "key", "value", "value_bias", "output", "output_bias")


def test_shared_heads_are_not_copied() -> None:
    for kind in ("mhe_mul", "mhe_add", "mqa", "sha", "mla"):
        heads = make_layer(kind, bias=True).folded()
        assert (len(heads.key), len(heads.value)) == (1, 1)


@pytest.mark.parametrize("name", [n for n, kind in KINDS.items() if not kind.not_foldable_because])
@torch.no_grad()
def test_the_mean_of_folds_is_the_fold_of_the_mean_where_heads_are_linear(name: str) -> None:
    """`average` refuses folds of other kinds."""
    one, other, mean = (make_layer(name, bias=True) for _ in range(3))
    for a, b, m in zip(one.parameters(), other.parameters(), mean.parameters(), strict=True):
        m.copy_((a + b.normal_()) / 2)
    heads = [vars(layer.folded().with_own_queries()) for layer in (one, other, mean)]
    means = [torch.allclose((heads[0][x] + heads[1][x]) / 2, heads[2][x]) for x in TENSORS]
    assert all(means) == KINDS[name].linear_heads


class SharedKey(MultiheadAttention):
    """A user's kind that shares one key head and overrides only `build` and `keys_values`."""

    def build(self) -> None:
        super().build()
        self.k_proj = self.input_linear(self.kdim, self.head_dim)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return split_heads(self.k_proj(key), 1), split_heads(self.v_proj(value), self.num_heads)


class Mixin:
    """A researcher's other queries, for any kind."""

    def queries(self: Any, x: Tensor) -> Tensor:
        return super().queries(x) * self.query_embedding[:, None]


class Mixed(Mixin, MHEMul):
    pass


class Known(Mixed):
    """Defines `plain_heads`, which knows the mixin's queries."""

    def plain_heads(self) -> PlainHeads:
        return super().plain_heads()


class Doubled(torch.nn.Linear):
    """A researcher's projection, such as one with an adapter."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_what_has_no_plain_heads_of_its_own_is_refused() -> None:
    adapted = make_layer("mqa", embed_dim=C, num_heads=N)
    adapted.q_proj = Doubled(C, C, bias=False).double()
    refused = {SharedKey(C, N): "SharedKey", Mixed(C, N): "Mixed", adapted: "q_proj is a Doubled"}
    for layer, named in refused.items():
        with refuses(named):
            layer.folded()
    assert Known(C, N).why_not_foldable() is None

"""Plain heads compute the same as the sublayer that they are folded from."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS, Attention
from fairseq_mhe.attention.base import join_heads, split_heads
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEMul
from fairseq_mhe.attention.plain_heads import PlainHeads
from fairseq_mhe.common.errors import UserError
from tests.attention.conftest import make_layer, random

C, N = 12, 3
FOLDABLE = [name for name, kind in KINDS.items() if kind.not_foldable_because is None]
#: Greatest differences of float64 sums.
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def attend_head_by_head(heads: PlainHeads, x: Tensor, y: Tensor) -> Tensor:
    """(T, C), (S, M) -> (T, C), computed as the docstring of ``PlainHeads`` says."""
    output = heads.output_bias.clone()
    count = len(heads.output)
    for i in range(count):
        j = i * len(heads.key) // count
        query = x @ heads.query[i * len(heads.query) // count].T
        if heads.query_factors is not None:
            query = query * heads.query_factors[i]
        query = query + heads.query_bias[i]
        key = y @ heads.key[j].T
        value = y @ heads.value[i * len(heads.value) // count].T + heads.value_bias[i]
        output = output + (heads.scale * query @ key.T).softmax(dim=1) @ value @ heads.output[i].T
    return output


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"bias": bias}) for kind in FOLDABLE for bias in (False, True)),
        *(("mhe_mul", {"head_embedding_offset": offset}) for offset in (0.0, 0.5)),
        ("gqa", {"kv_heads": 3, "head_dim": 5}),
        ("mla", {"latent_dim": 5, "bias": True}),
        ("mfa", {"query_norm": "none", "bias": True}),
        ("skv", {"kv_heads": 1, "bias": True}),
    ],
)
def test_plain_heads_compute_the_same(kind: str, options: dict[str, Any]) -> None:
    attention = make_layer(kind, embed_dim=C, num_heads=N, **options)
    x, y = random(4, C), random(6, C, seed=1)
    expected = attention(x.unsqueeze(1), y.unsqueeze(1), y.unsqueeze(1))[0].squeeze(1)
    heads = attention.folded()
    torch.testing.assert_close(attend_head_by_head(heads, x, y), expected, **EXACT)
    of_itself = attention(x.unsqueeze(1))[0].squeeze(1)
    torch.testing.assert_close(attend_head_by_head(heads, x, x), of_itself, **EXACT)
    separate = heads.separate(N)
    assert len(separate.query) == len(separate.key) == len(separate.value) == N
    torch.testing.assert_close(attend_head_by_head(separate, x, y), expected, **EXACT)
    if kind == "collaborative":  # its keys are wider than a stock head
        assert separate.key.size(1) == C // 4 + N * options["bias"]
        return
    width = attention.head_dim
    for stock in (separate.of_width(8), separate.of_width(width)):  # mla's keys are wider
        assert stock.scale == stock.key.size(1) ** -0.5 == stock.value.size(1) ** -0.5
        torch.testing.assert_close(attend_head_by_head(stock, x, y), expected, **EXACT)
    with pytest.raises(UserError):
        separate.of_width(2)


def test_shared_heads_are_not_copied() -> None:
    for kind in ("mhe_mul", "mhe_add", "mqa", "sha", "mla"):
        heads = make_layer(kind, bias=True).folded()
        assert (len(heads.key), len(heads.value)) == (1, 1)


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


class Merged(MHEMul):
    def merge(self, heads: Tensor) -> Tensor:
        return self.out_proj(join_heads(heads))


class Doubled(torch.nn.Linear):
    """A researcher's projection, such as one with an adapter."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_projection_that_is_no_plain_product_is_not_folded() -> None:
    layer = make_layer("mqa", embed_dim=C, num_heads=N)
    layer.q_proj = Doubled(C, C, bias=False).double()
    with pytest.raises(UserError) as refusal:
        layer.folded()
    assert "q_proj is a Doubled" in str(refusal.value)


class Known(Mixed):
    """Overrides `plain_heads`, too, so that the mixin's queries are known to it."""

    def plain_heads(self) -> PlainHeads:
        return super().plain_heads()


@pytest.mark.parametrize(
    ("kind", "method"), [(SharedKey, "keys_values"), (Mixed, "queries"), (Merged, "merge")]
)
def test_a_class_that_overrides_a_hook_has_no_plain_heads(
    kind: type[Attention], method: str
) -> None:
    layer = kind(C, N, kind="mine")
    with pytest.raises(UserError) as refusal:
        layer.folded()
    assert f"overrides {method}" in str(refusal.value)
    assert Known(C, N).why_not_foldable() is None

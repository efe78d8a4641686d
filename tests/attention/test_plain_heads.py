"""Plain heads compute the same as the sublayer that they are folded from, or are refused."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fairseq_mhe.attention import KINDS, Attention
from fairseq_mhe.attention.base import join_heads, split_heads
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEMul
from fairseq_mhe.attention.plain_heads import PlainHeads
from fairseq_mhe.common.errors import UserError
from tests.attention.conftest import make_layer, random

C, N = 12, 3
FOLDABLE = [name for name, kind in KINDS.items() if kind.not_foldable_because is None]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in FOLDABLE if kind != "collaborative"),
        ("collaborative", {"collaborative_dim": 1}),  # its keys are 1 wide, with biases 1 + N
        ("mhe_mul", {"head_embedding_offset": 0.5}),
        ("gqa", {"kv_heads": 3, "head_dim": 5}),
        ("mla", {"latent_dim": 5}),
        ("mfa", {"query_norm": "none"}),
        ("skv", {"kv_heads": 1}),
    ],
    ids=str,
)
def test_mha_with_the_folded_parameters_computes_the_same(
    kind: str, options: dict[str, Any], bias: bool
) -> None:
    layer = make_layer(kind, embed_dim=C, num_heads=N, bias=bias, **options)
    x, y = random(4, 2, C), random(6, 2, C, seed=1)
    heads = layer.folded()
    for width in (layer.head_dim, 8):
        mha = make_layer("mha", torch.float32, embed_dim=C, num_heads=N, bias=True, head_dim=width)
        mha.load_state_dict(heads.stock_parameters(N, width))
        for memory in (x, y):
            expected, _ = layer(x, memory)
            out, _ = mha(x.float(), memory.float())
            assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    if kind != "collaborative":
        with pytest.raises(UserError):
            heads.stock_parameters(N, 2)


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


class Known(Mixed):
    """Overrides `plain_heads`, too, so that the mixin's queries are known to it."""

    def plain_heads(self) -> PlainHeads:
        return super().plain_heads()


class Doubled(torch.nn.Linear):
    """A researcher's projection, such as one with an adapter."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def refusal(layer: Attention) -> str:
    with pytest.raises(UserError) as refusal:
        layer.folded()
    return str(refusal.value)


def test_a_class_that_overrides_a_hook_has_no_plain_heads() -> None:
    assert "keys_values" in refusal(SharedKey(C, N))
    assert "queries" in refusal(Mixed(C, N))
    assert "merge" in refusal(Merged(C, N))
    assert Known(C, N).why_not_foldable() is None


def test_a_projection_that_is_no_plain_product_is_not_folded() -> None:
    layer = make_layer("mqa", embed_dim=C, num_heads=N)
    layer.q_proj = Doubled(C, C, bias=False).double()
    assert "q_proj is a Doubled" in refusal(layer)

"""Every kind written out as ordinary heads computes the same as the sublayer."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS
from fairseq_mhe.attention.base import join_heads, split_heads
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEMul
from fairseq_mhe.attention.written_out import WrittenOut
from fairseq_mhe.common.errors import UserError
from tests.attention.conftest import make_layer, random

C, N = 12, 3
#: Kinds without ordinary heads; they give the reason.
NO_HEADS = [name for name, kind in KINDS.items() if kind.no_heads]
WRITTEN_OUT = [name for name in KINDS if name not in NO_HEADS]


def attend_head_by_head(heads: WrittenOut, x: Tensor, y: Tensor) -> Tensor:
    """(T, C), (S, M) -> (T, C), computed as the docstring of ``WrittenOut`` says."""
    output = heads.output_bias.clone()
    for i in range(len(heads.query)):
        query = x @ heads.query[i].T + heads.query_bias[i]
        key = y @ heads.key[i].T + heads.key_bias[i]
        value = y @ heads.value[i].T + heads.value_bias[i]
        output = output + (heads.scale * query @ key.T).softmax(dim=1) @ value @ heads.output[i].T
    return output


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"bias": bias}) for kind in WRITTEN_OUT for bias in (False, True)),
        *(("mhe_mul", {"head_embedding_offset": offset}) for offset in (0.0, 0.5)),
    ],
)
def test_written_out_heads_compute_the_same(kind: str, options: dict[str, Any], gpu: bool) -> None:
    attention = make_layer(kind, embed_dim=C, num_heads=N, **options)
    x, y = random(4, C), random(6, C, seed=1)
    expected = attention(x.unsqueeze(1), y.unsqueeze(1), y.unsqueeze(1))[0].squeeze(1)
    exact = {"rtol": 1e-10, "atol": 1e-10}
    heads = attention.written_out()
    torch.testing.assert_close(attend_head_by_head(heads, x, y), expected, **exact)
    of_itself = attention(x.unsqueeze(1))[0].squeeze(1)
    torch.testing.assert_close(attend_head_by_head(heads, x, x), of_itself, **exact)
    if kind != "collaborative":  # its keys are wider than a stock head
        wider = heads.of_width(8)
        assert (wider.key.size(1), wider.value.size(1), wider.scale) == (8, 8, 8**-0.5)
        torch.testing.assert_close(attend_head_by_head(wider, x, y), expected, **exact)


class SharedKey(MultiheadAttention):
    """A user's kind that shares one key head and overrides only `build` and `keys_values`."""

    def build(self) -> None:
        super().build()
        self.k_proj = self.input_linear(self.kdim, self.head_dim)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return split_heads(self.k_proj(key), 1), split_heads(self.v_proj(value), self.num_heads)


def test_a_kind_with_a_hook_loses_the_shortcuts_that_bypass_it() -> None:
    layer = SharedKey(C, N, kind="mine")
    assert layer.cached_values == C // N + C
    assert not layer.projects_together
    assert layer.no_heads == "its class overrides a hook, but not written_out()"
    for refused in (layer, *map(make_layer, NO_HEADS)):
        error = f"{refused.kind} attention is not written out as ordinary heads: {refused.no_heads}"
        with pytest.raises(UserError, match=re.escape(error)):
            refused.written_out()
    queries = {"queries": lambda layer, x: layer.shared_query(x) * layer.query_embedding[:, None]}
    merge = {"merge": lambda layer, heads, _: layer.out_proj(join_heads(heads))}
    for hook in (queries, merge):
        mine = type("Mine", (MHEMul,), hook)(C, N, head_embedding_std=1.0).double()
        expected, _ = mine(x := random(4, 2, C))
        mine.make_generation_fast_()
        torch.testing.assert_close(mine(x)[0], expected)

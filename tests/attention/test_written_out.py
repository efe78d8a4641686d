"""Every kind written out as ordinary heads computes what the sublayer computes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS, Attention, build_attention
from fairseq_mhe.attention.written_out import WrittenOut
from fairseq_mhe.common.errors import UserError
from tests.fixtures.checkpoints import stir

C, N = 12, 3
#: Kinds that say why they have no ordinary heads.
NO_HEADS = [name for name, kind in KINDS.items() if kind.no_heads]
WRITTEN_OUT = [name for name in KINDS if name not in NO_HEADS]


def by_hand(heads: WrittenOut, x: Tensor, y: Tensor) -> Tensor:
    """(T, C), (S, M) -> (T, C), head by head as the docstring of ``WrittenOut`` says."""
    output = heads.output_bias.clone()
    for i in range(len(heads.query)):
        query = x @ heads.query[i].T + heads.query_bias[i]
        key = y @ heads.key[i].T + heads.key_bias[i]
        value = y @ heads.value[i].T + heads.value_bias[i]
        output = output + (heads.scale * query @ key.T).softmax(dim=1) @ value @ heads.output[i].T
    return output


def sublayer(kind: str, **options: Any) -> Attention:
    torch.manual_seed(2)
    attention = build_attention(kind, C, N, **options)
    return stir(attention).eval().double()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"bias": bias}) for kind in WRITTEN_OUT for bias in (False, True)),
        *(("mhe_mul", {"head_embedding_offset": offset}) for offset in (0.0, 0.5)),
    ],
)
def test_written_out_heads_compute_the_same(kind: str, options: dict[str, Any]) -> None:
    attention = sublayer(kind, **options)
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(length, C, generator=generator, dtype=torch.float64) for length in (4, 6))
    expected = attention(x.unsqueeze(1), y.unsqueeze(1), y.unsqueeze(1))[0].squeeze(1)
    exact = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(by_hand(attention.written_out(), x, y), expected, **exact)
    if kind != "collaborative":  # whose keys are wider than a stock head
        wider = attention.written_out().of_width(8)
        assert (wider.key.size(1), wider.value.size(1), wider.scale) == (8, 8, 8**-0.5)
        torch.testing.assert_close(by_hand(wider, x, y), expected, **exact)


@pytest.mark.parametrize("kind", NO_HEADS)
def test_which_kinds_have_no_heads_and_why(kind: str) -> None:
    reason = f"{kind} attention is not written out as ordinary heads: {KINDS[kind].no_heads}"
    with pytest.raises(UserError, match=reason):
        sublayer(kind).written_out()

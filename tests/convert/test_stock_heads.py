"""fairseq's attention with folded parameters computes the same, or the fold is refused."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.stock_heads import stock_parameters
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
        mha.load_state_dict(stock_parameters(heads, N, width))
        for memory in (x, y):
            expected, _ = layer(x, memory)
            out, _ = mha(x.float(), memory.float())
            assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    if kind != "collaborative":
        with pytest.raises(UserError):
            stock_parameters(heads, N, 2)

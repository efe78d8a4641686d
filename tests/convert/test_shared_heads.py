"""CTranslate2's multi-query layout stores equal heads once, and only equal heads."""

import pytest
import torch
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from fairseq.modules import MultiheadAttention
from torch import nn

from fairseq_mhe.convert.shared_heads import set_shared_heads

HEADS, WIDTH, C = 4, 2, 8


def attention(groups: int) -> MultiheadAttention:
    """Return 4 heads with equal keys and value weights within each of ``groups``; biases differ."""
    torch.manual_seed(1)
    module = MultiheadAttention(C, HEADS, encoder_decoder_attention=True).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        for shared in (module.k_proj.weight, module.k_proj.bias, module.v_proj.weight):
            rows = shared.unflatten(0, (groups, HEADS // groups, WIDTH))
            rows.copy_(rows[:, :1].clone().expand_as(rows))
    return module


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_equal_heads_are_stored_once(groups: int) -> None:
    """test_to_ctranslate2.py compares the translations."""
    spec = MultiHeadAttentionSpec(self_attention=False)
    set_shared_heads(spec, attention(groups))
    assert int(getattr(spec, "num_heads_kv", HEADS)) == groups
    assert spec.linear[1].weight.shape == (2 * groups * WIDTH, C)  # keys and values


@pytest.mark.parametrize("name", ["k_proj.weight", "k_proj.bias", "v_proj.weight"])
def test_heads_that_differ_in_one_number_are_not_shared(name: str) -> None:
    module = attention(1)
    with torch.no_grad():
        module.get_parameter(name)[3] += 1e-3  # a row of the second head
    spec = MultiHeadAttentionSpec(self_attention=False)
    set_shared_heads(spec, module)
    assert not hasattr(spec, "num_heads_kv")

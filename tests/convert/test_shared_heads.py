"""CTranslate2's multi-query layout stores equal heads once, and only equal heads."""

from typing import Any

import numpy as np
import pytest
import torch
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_mhe.convert.shared_heads import set_shared_heads

HEADS, WIDTH, C = 4, 2, 8


def attention(groups: int, self_attention: bool) -> MultiheadAttention:
    """Return 4 heads with equal keys and value weights within each of ``groups``; biases differ."""
    torch.manual_seed(1)
    place = "self_attention" if self_attention else "encoder_decoder_attention"
    module = MultiheadAttention(C, HEADS, **{place: True}).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        for shared in (module.k_proj.weight, module.k_proj.bias, module.v_proj.weight):
            rows = shared.unflatten(0, (groups, HEADS // groups, WIDTH))
            rows.copy_(rows[:, :1].clone().expand_as(rows))
    return module


def array(x: Any) -> Any:
    """Return a specification's array: numpy's for joined layers, else CTranslate2's."""
    return x if isinstance(x, np.ndarray) else x.numpy()


def attend(spec: Any, kv_heads: int, x: Tensor) -> Any:
    """(T, C) -> (T, C): compute what CTranslate2 does with ``kv_heads`` key and value heads."""
    *inputs, output = [(array(layer.weight), array(layer.bias)) for layer in spec.linear]
    projected = np.concatenate([x.numpy() @ w.T + b for w, b in inputs], axis=1)
    query, key, value = np.split(projected, [C, C + kv_heads * WIDTH], axis=1)
    heads = []
    for i in range(HEADS):
        j = i // (HEADS // kv_heads)
        q = query[:, i * WIDTH : (i + 1) * WIDTH]
        k, v = (part[:, j * WIDTH : (j + 1) * WIDTH] for part in (key, value))
        scores = np.exp(q @ k.T / WIDTH**0.5)
        heads.append(scores / scores.sum(axis=1, keepdims=True) @ v)
    return np.concatenate(heads, axis=1) @ output[0].T + output[1]


@pytest.mark.parametrize("self_attention", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_equal_heads_are_stored_once_with_the_same_output(
    groups: int, self_attention: bool
) -> None:
    module, x = attention(groups, self_attention), torch.randn(5, 1, C)
    expected = module(x, x, x)[0].detach().squeeze(1).numpy()
    spec = MultiHeadAttentionSpec(self_attention=self_attention)
    set_shared_heads(spec, module, self_attention)
    assert int(getattr(spec, "num_heads_kv", HEADS)) == groups
    np.testing.assert_allclose(attend(spec, groups, x.squeeze(1)), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["k_proj.weight", "k_proj.bias", "v_proj.weight"])
def test_heads_that_differ_in_one_number_are_not_shared(name: str) -> None:
    module = attention(1, True)
    with torch.no_grad():
        module.get_parameter(name)[3] += 1e-3  # a row of the second head
    spec = MultiHeadAttentionSpec(self_attention=True)
    set_shared_heads(spec, module, True)
    assert not hasattr(spec, "num_heads_kv")

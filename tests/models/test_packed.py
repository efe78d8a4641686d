"""Packed linear layers: the plain product, whatever happens to the model around them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairseq_mhe.models.packed import WORTH_PACKING, PackedLinear, pack_linears
from tests.models.conftest import make_batch, make_model

#: Sums of a few hundred products of unit normals, in another order: the error of float32 addition.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}


def _packed(features: tuple[int, int] = (12, 20), bias: bool = True) -> PackedLinear:
    torch.manual_seed(1)
    return PackedLinear(nn.Linear(*features, bias=bias))


def _plain(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    product = x.double() @ layer.weight.detach().double().T
    return (product if layer.bias is None else product + layer.bias.detach().double()).float()


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    features=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    bias=st.booleans(),
)
@settings(deadline=None, max_examples=50)
def test_it_is_the_plain_product(shape: list[int], features: tuple[int, int], bias: bool) -> None:
    layer = _packed(features, bias)
    x = torch.randn(*shape, features[0])
    with torch.no_grad():
        torch.testing.assert_close(layer(x), _plain(layer, x), **TOLERANCE)
    assert layer.packed_bytes == 4 * layer.weight.numel()


def test_a_changed_weight_is_noticed() -> None:
    layer, x = _packed(), torch.randn(3, 12)
    with torch.no_grad():
        before = layer(x)
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x), _plain(layer, x), **TOLERANCE)
        layer.load_state_dict({name: value / 2 for name, value in layer.state_dict().items()})
        torch.testing.assert_close(layer(x), _plain(layer, x), **TOLERANCE)
    assert not torch.equal(before, _plain(layer, x))


def test_gradients_flow_as_in_a_plain_layer() -> None:
    layer, x = _packed(), torch.randn(3, 12)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(20, 12))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_take_the_plain_path(dtype: torch.dtype) -> None:
    layer, x = _packed(), torch.randn(3, 12)
    with torch.no_grad():
        layer(x)
        layer.to(dtype)
        assert layer.packed_bytes == 0
        torch.testing.assert_close(layer(x.to(dtype)).float(), _plain(layer, x.to(dtype)), rtol=0.02, atol=0.02)


def test_it_can_be_copied_after_use() -> None:
    layer, x = _packed(), torch.randn(3, 12)
    with torch.no_grad():
        expected = layer(x)
        torch.testing.assert_close(copy.deepcopy(layer)(x), expected)


def _wide(**options: Any) -> nn.Module:
    """A model whose feed-forward layers are worth packing."""
    width = {f"{side}_ffn_embed_dim": WORTH_PACKING // 16 for side in ("encoder", "decoder")}
    return make_model(**width, **options)


def test_only_large_layers_are_replaced_and_parameters_stay(attention: str) -> None:
    model = _wide(attention=attention)
    names, values = zip(*model.named_parameters(), strict=True)
    pack_linears(model)
    after_names, after_values = zip(*model.named_parameters(), strict=True)
    assert after_names == names
    assert all(one is other for one, other in zip(values, after_values, strict=True))
    packed = {name for name, module in model.named_modules() if isinstance(module, PackedLinear)}
    sides = ("encoder", "decoder")
    assert packed == {f"{side}.layers.{n}.{fc}" for side in sides for n in (0, 1) for fc in ("fc1", "fc2")}


def test_a_model_ready_for_generation_computes_the_same(attention: str) -> None:
    model, batch = _wide(attention=attention), make_batch()
    with torch.no_grad():
        expected = model(**batch)[0]
        model.make_generation_fast_()
        torch.testing.assert_close(model(**batch)[0], expected, **TOLERANCE)
    assert any(isinstance(module, PackedLinear) for module in model.modules())

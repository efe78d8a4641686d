"""Packed linear layers: the plain product, whatever happens to the model around them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairseq_mhe.attention.mhe import ScaledLinear
from fairseq_mhe.models import packed
from fairseq_mhe.models.packed import (
    WORTH_PACKING,
    Bf16Linear,
    Bf16Logits,
    Int8Linear,
    PackedLinear,
)
from tests.fixtures.models import make_batch, make_model

#: Sums of a few hundred products of unit normals, in another order: the error of float32 addition.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}
#: Of 12 products: inputs in steps of about 1/25, weights up to 0.29 (doubled in a test) in steps of
#: 1/440.
NEAR = {"rtol": 0.0, "atol": 0.1}
#: Of 12 products: inputs up to 3 and weights up to 0.6 in steps of 1/256 of them, outputs too.
BF16 = {"rtol": 2**-7, "atol": 0.02}
NEEDS_BF16 = pytest.mark.skipif(not packed.bf16_available(), reason="no AVX-512")
EITHER = pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        (PackedLinear, TOLERANCE),
        (Int8Linear, NEAR),
        pytest.param(Bf16Linear, BF16, marks=NEEDS_BF16),
        pytest.param(Bf16Logits, BF16, marks=NEEDS_BF16),
    ],
)


def _packed(
    features: tuple[int, int] = (12, 20),
    bias: bool = True,
    kind: type[PackedLinear] = PackedLinear,
) -> PackedLinear:
    torch.manual_seed(1)
    return kind(nn.Linear(*features, bias=bias))


def _plain(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    product = x.double() @ layer.weight.detach().double().T
    return (product if layer.bias is None else product + layer.bias.detach().double()).float()


def _rounded(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """The product of what is left of weights and inputs after rounding, as the docstring of
    Int8Linear says.
    """
    weight = layer.weight.detach()
    step = weight.abs().amax(1, keepdim=True) / 127
    least, greatest = min(0.0, x.min().item()), max(0.0, x.max().item())
    width = (greatest - least) / 127
    shift = round(-least / width)
    x = ((x / width).round() + shift).clamp(0, 127).sub(shift) * width
    rounded = nn.Linear(layer.in_features, layer.out_features, bias=False)
    rounded.weight = nn.Parameter((weight / step).round() * step)
    rounded.bias = layer.bias
    return _plain(rounded, x)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    features=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    bias=st.booleans(),
)
@settings(max_examples=50)
def test_it_is_the_plain_product(
    shape: list[int], features: tuple[int, int], bias: bool
) -> None:
    layer = _packed(features, bias)
    x = torch.randn(*shape, features[0])
    with torch.no_grad():
        torch.testing.assert_close(layer(x), _plain(layer, x), **TOLERANCE)
    assert layer.packed_bytes == 4 * layer.weight.numel()


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    features=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    bias=st.booleans(),
    mean=st.sampled_from([-3.0, 0.0, 0.5, 3.0]),
)
@settings(max_examples=50)
def test_int8_is_the_product_of_the_rounded(
    shape: list[int], features: tuple[int, int], bias: bool, mean: float
) -> None:
    layer = _packed(features, bias, Int8Linear)
    x = torch.randn(*shape, features[0]) + mean
    with torch.no_grad():
        found, expected = layer(x), _rounded(layer, x)
    # One input or weight in between two levels may be rounded the other way: one level of it at
    # most.
    level = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 127 * layer.weight.abs().max()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=max(1e-5, level.item()))
    assert (found - expected).abs().median() < 1e-4
    assert layer.packed_bytes == features[0] * features[1]


@NEEDS_BF16
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    features=st.tuples(st.integers(1, 300), st.integers(1, 700)),
    bias=st.booleans(),
)
@settings(max_examples=50)
@torch.no_grad()
def test_bf16_is_the_product_of_the_rounded_but_for_the_greatest_logits(
    shape: list[int], features: tuple[int, int], bias: bool
) -> None:
    logits, x = _packed(features, bias, Bf16Logits), torch.randn(*shape, features[0])
    exact, found = _plain(logits, x), logits(x)
    rounded = nn.Linear(*features, bias=bias)
    rounded.load_state_dict({k: v.bfloat16().float() for k, v in logits.state_dict().items()})
    plain = Bf16Linear(logits)(x)
    # Products of 8 bits are exact in float32; the sum is rounded to 8 bits of its own.
    torch.testing.assert_close(plain, _plain(rounded, x.bfloat16()), rtol=2**-8, atol=1e-4)
    is_exact = (found - exact).abs() <= 1e-5 * exact.abs() + 1e-4
    tenth = plain.topk(min(10, features[1])).values[..., -1:]  # bf16 has equal ones
    assert is_exact[plain > tenth].all()
    assert (is_exact | (found == plain)).all()
    assert logits.packed_bytes == 2 * logits.weight.numel()


@NEEDS_BF16
@torch.no_grad()
def test_auto_is_bf16_where_the_processor_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed, "WORTH_PACKING", 1)
    for flags, kinds in [("avx512f", {PackedLinear}), ("amx_bf16", {Bf16Linear, Bf16Logits})]:
        monkeypatch.setattr("fairseq_mhe.common.cpu.cpu_flags", flags.split)
        model, batch = make_model(generation_precision="auto"), make_batch()
        expected = model(**batch)[0]
        model.make_generation_fast_()
        assert {type(part) for part in model.modules() if isinstance(part, nn.Linear)} == kinds
        torch.testing.assert_close(model(**batch)[0], expected, rtol=0.02, atol=0.05)


@pytest.mark.parametrize(
    ("precision", "available", "refusal"),
    [
        ({"generation_precision": "bf16"}, "bf16_available", "a processor with AVX-512"),
        ({"int8_generation": True}, "int8_available", "a float32 model on an x86 processor"),
    ],
)
def test_a_precision_that_cannot_be_is_refused(
    precision: dict[str, Any], available: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=refusal):
        _wide(**precision).half().make_generation_fast_()
    monkeypatch.setattr(packed, available, lambda: False)
    with pytest.raises(SystemExit, match=refusal):
        _wide(**precision).make_generation_fast_()
    _wide(generation_precision="auto").make_generation_fast_()


@EITHER
@torch.no_grad()
def test_factors_of_inputs_are_packed_with_the_weight(
    kind: type[PackedLinear], tolerance: dict[str, float]
) -> None:
    """As in generation with head embeddings; the parameters stay the layer's own."""
    torch.manual_seed(1)
    layer, factors, x = nn.Linear(12, 20), 1 + 0.5 * torch.randn(12), torch.randn(4, 12)
    layer_packed = kind(ScaledLinear(layer, factors))
    torch.testing.assert_close(layer_packed(x), layer(x * factors), **tolerance)
    with torch.enable_grad():  # by the weight that is not packed
        torch.testing.assert_close(layer_packed(x), layer(x * factors), **TOLERANCE)
    assert layer_packed.state_dict().keys() == layer.state_dict().keys()
    assert torch.equal(layer_packed.weight, layer.weight)


def _wide(**options: Any) -> nn.Module:
    """A model whose feed-forward layers are worth packing."""
    width = {f"{side}_ffn_embed_dim": WORTH_PACKING // 16 for side in ("encoder", "decoder")}
    return make_model(**width, **options)


def test_only_large_layers_are_replaced_and_the_model_stays_the_same(attention: str) -> None:
    model, batch = _wide(attention=attention), make_batch()
    names, values = zip(*model.named_parameters(), strict=True)
    with torch.no_grad():
        expected = model(**batch)[0]
        model.make_generation_fast_()
        torch.testing.assert_close(model(**batch)[0], expected, **TOLERANCE)
    after_names, after_values = zip(*model.named_parameters(), strict=True)
    assert after_names == names
    assert all(one is other for one, other in zip(values, after_values, strict=True))
    packed = {name for name, module in model.named_modules() if type(module) is PackedLinear}
    layers = [f"{side}.layers.{n}" for side in ("encoder", "decoder") for n in (0, 1)]
    assert packed == {f"{layer}.{fc}" for layer in layers for fc in ("fc1", "fc2")}


@EITHER
@torch.no_grad()
def test_a_moved_layer_is_the_plain_product(
    kind: type[PackedLinear], tolerance: dict[str, float]
) -> None:
    layer, x = _packed(kind=kind), torch.randn(3, 12)
    expected, packed_bytes = _plain(layer, x), layer.packed_bytes
    layer.double()
    torch.testing.assert_close(layer(x.double()).float(), expected)
    assert layer.packed_bytes == 0
    layer.float()
    torch.testing.assert_close(layer(x), expected, **tolerance)
    assert layer.packed_bytes == packed_bytes


def test_it_is_packed_in_inference_mode() -> None:
    with torch.inference_mode():
        layer = _packed()
        x = torch.randn(3, 12)
        torch.testing.assert_close(layer(x), _plain(layer, x), **TOLERANCE)

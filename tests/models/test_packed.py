"""Packed linear layers equal plain ones, also in a model that is moved or folds factors."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models import packed
from fairseq_mhe.models.packed import Bf16Inner, Bf16Linear, Bf16Logits, Int8Linear, PackedLinear
from tests.fixtures.models import make_batch, make_model

#: Sums of a few hundred products of unit normals, in another order: the error of float32 addition.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}
NEEDS_BF16 = pytest.mark.skipif(not packed.bf16_available(), reason="no AVX-512")
#: Layers and the error of their sums of 12 products: int8 has steps of about 1/25 for inputs and of
#: 1/440 for weights up to 0.29 (doubled in a test); bf16 rounds both, inputs up to 3, to 8 bits.
each_kind = pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        (PackedLinear, TOLERANCE),
        (Int8Linear, {"rtol": 0.0, "atol": 0.1}),
        pytest.param(Bf16Linear, {"rtol": 2**-7, "atol": 0.02}, marks=NEEDS_BF16),
        pytest.param(Bf16Logits, {"rtol": 2**-7, "atol": 0.02}, marks=NEEDS_BF16),
    ],
)
LAYERS = {
    "shape": st.lists(st.integers(1, 7), min_size=1, max_size=3),
    "features": st.tuples(st.integers(1, 300), st.integers(1, 700)),
    "bias": st.booleans(),
}


def layer_of(kind: Any, features: tuple[int, int] = (12, 20), bias: bool = True) -> Any:
    return kind(nn.Linear(*features, bias=bias))


def product(layer: nn.Linear, x: Tensor) -> Tensor:
    """The output of a layer, computed in float64."""
    y = x.double() @ layer.weight.detach().double().T
    return (y if layer.bias is None else y + layer.bias.detach().double()).float()


def rounded_product(layer: nn.Linear, x: Tensor) -> Tensor:
    """The product of weights and inputs rounded as the docstring of Int8Linear says."""
    weight = layer.weight.detach()
    step = weight.abs().amax(1, keepdim=True) / 127
    least, greatest = min(0.0, x.min().item()), max(0.0, x.max().item())
    width = (greatest - least) / 127
    shift = round(-least / width)
    x = ((x / width).round() + shift).clamp(0, 127).sub(shift) * width
    rounded = nn.Linear(layer.in_features, layer.out_features, bias=False)
    rounded.weight = nn.Parameter((weight / step).round() * step)
    rounded.bias = layer.bias
    return product(rounded, x)


@given(**LAYERS)
@settings(max_examples=50)
@torch.inference_mode()
def test_a_packed_layer_is_the_plain_product(shape: Any, features: Any, bias: bool) -> None:
    layer = layer_of(PackedLinear, features, bias)
    x = torch.randn(*shape, features[0])
    torch.testing.assert_close(layer(x), product(layer, x), **TOLERANCE)
    assert layer.packed_bytes == 4 * layer.weight.numel()


@given(mean=st.sampled_from([-3.0, 0.0, 0.5, 3.0]), **LAYERS)
@settings(max_examples=50)
@torch.no_grad()
def test_int8_is_the_rounded_product(shape: Any, features: Any, bias: bool, mean: float) -> None:
    layer = layer_of(Int8Linear, features, bias)
    x = torch.randn(*shape, features[0]) + mean
    error = (layer(x) - rounded_product(layer, x)).abs()
    # One input or weight between two levels may be rounded the other way: one level at most.
    level = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 127 * layer.weight.abs().max()
    assert (error <= 1e-4 * product(layer, x).abs() + max(1e-5, level.item())).all()
    assert error.median() < 1e-4
    assert layer.packed_bytes == layer.weight.numel()


@NEEDS_BF16
@given(**LAYERS)
@settings(max_examples=50)
@torch.no_grad()
def test_bf16_is_the_rounded_product_but_for_the_greatest_logits(
    shape: Any, features: Any, bias: bool
) -> None:
    logits, x = layer_of(Bf16Logits, features, bias), torch.randn(*shape, features[0])
    exact, y = product(logits, x), logits(x)
    rounded = nn.Linear(*features, bias=bias)
    rounded.load_state_dict({k: v.bfloat16().float() for k, v in logits.state_dict().items()})
    plain = Bf16Linear(logits)(x)
    # Products of 8-bit numbers are exact in float32; only the sum is rounded to 8 bits.
    torch.testing.assert_close(plain, product(rounded, x.bfloat16()), rtol=2**-8, atol=1e-4)
    inner = Bf16Inner(logits)(x)  # in bfloat16, for the second layer
    assert torch.equal(inner.float(), plain)
    assert torch.equal(plain, Bf16Linear(logits)(x.bfloat16()))
    is_exact = (y - exact).abs() <= 1e-5 * exact.abs() + 1e-4
    sixth = plain.topk(min(6, features[1])).values[..., -1:]  # others may equal it in bf16
    assert is_exact[plain > sixth].all()
    assert (is_exact | (y == plain)).all()
    assert logits.packed_bytes == 2 * logits.weight.numel()


@NEEDS_BF16
@torch.no_grad()
def test_auto_is_bf16_where_the_processor_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "WORTH_PACKING", 1)
    bf16 = {Bf16Inner, Bf16Linear}
    for flags, least_width, kinds in [
        ("avx512f", 1, {PackedLinear}),
        ("amx_bf16", 512, bf16 | {PackedLinear}),  # the logits of a narrow model
        ("amx_bf16", 1, bf16 | {Bf16Logits}),
    ]:
        monkeypatch.setattr("fairseq_mhe.common.cpu.cpu_flags", lambda flags=flags: {flags})
        monkeypatch.setattr(packed, "WIDE_LOGITS", least_width)
        model, batch = make_model(generation_precision="auto"), make_batch()
        expected = model(**batch)[0]
        model.make_generation_fast_()
        assert {type(part) for part in model.modules() if isinstance(part, nn.Linear)} == kinds
        torch.testing.assert_close(model(**batch)[0], expected, rtol=0.02, atol=0.05)


PROCESSORS = {"bf16": "a processor with AVX-512", "int8": "an x86 processor"}


@pytest.mark.parametrize("precision", PROCESSORS)
def test_a_precision_that_cannot_run_is_refused(precision: str, monkeypatch: Any) -> None:
    refusal = f"generation in {precision} is for a float32 model on {PROCESSORS[precision]}"
    with pytest.raises(UserError, match=refusal):
        wide(generation_precision=precision).half().make_generation_fast_()
    monkeypatch.setattr(packed, f"{precision}_available", lambda: False)
    with pytest.raises(UserError, match=refusal):
        wide(generation_precision=precision).make_generation_fast_()
    wide(generation_precision="auto").make_generation_fast_()
    with pytest.raises(UserError, match="unknown generation_precision 'bf61'; choose one of: "):
        wide(generation_precision="bf61").make_generation_fast_()


@each_kind
@torch.no_grad()
def test_a_moved_layer_is_the_plain_product(kind: Any, tolerance: Any) -> None:
    layer, x = layer_of(kind), torch.randn(3, 12)
    expected = product(layer, x)
    layer.double()
    torch.testing.assert_close(layer(x.double()).float(), expected)
    layer.float()
    torch.testing.assert_close(layer(x), expected, **tolerance)


def wide(**options: Any) -> nn.Module:
    """A model whose feed-forward layers are worth packing."""
    width = packed.WORTH_PACKING // 16
    return make_model(encoder_ffn_embed_dim=width, decoder_ffn_embed_dim=width, **options)


def test_only_large_layers_are_packed(attention: str) -> None:
    model, batch = wide(attention=attention), make_batch()
    with torch.no_grad():
        expected = model(**batch)[0]
        model.make_generation_fast_()
        torch.testing.assert_close(model(**batch)[0], expected, **TOLERANCE)
    large = {name for name, module in model.named_modules() if type(module) is PackedLinear}
    layers = [f"{side}.layers.{n}" for side in ("encoder", "decoder") for n in (0, 1)]
    assert large == {f"{layer}.{fc}" for layer in layers for fc in ("fc1", "fc2")}


@pytest.mark.parametrize("precision", ["float32", "int8", pytest.param("bf16", marks=NEEDS_BF16)])
@torch.no_grad()
def test_the_projections_of_attention_are_packed_and_can_be_copied(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "WORTH_PACKING", 1)
    model, batch = make_model(generation_precision=precision), make_batch()
    expected = model(**batch)[0]
    model.make_generation_fast_()
    assert isinstance(model.decoder.layers[0].self_attn.in_proj, PackedLinear)
    assert isinstance(model.decoder.layers[0].encoder_attn.q_proj, PackedLinear)
    result = model(**batch)[0]
    tolerance = {"float32": 1e-4, "bf16": 0.1, "int8": 0.5}[precision]
    torch.testing.assert_close(result, expected, rtol=0, atol=tolerance)
    assert torch.equal(copy.deepcopy(model)(**batch)[0], result)

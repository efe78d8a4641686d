"""Packed linear layers equal plain ones, also in a model that is moved or folds factors."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models import packed
from fairseq_mhe.models.packed import Bf16Inner, Bf16Linear, Bf16Logits, Int8Linear, PackedLinear
from tests.fixtures.models import make_batch, make_model

#: Sums of a few hundred products of unit normals, in another order: the error of float32 addition.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}
NEEDS_BF16 = pytest.mark.skipif(not packed.bf16_available(), reason="no AVX-512")
#: Layers and the error of their sums of products with weights up to 1/sqrt(n), for inputs up to 3.
#: int8 has steps of about 1/25 for inputs and of 1/127 of the greatest weight; bf16 has 8 bits.
each_kind = pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        (PackedLinear, TOLERANCE),
        (Int8Linear, {"rtol": 0.0, "atol": 0.06}),
        pytest.param(Bf16Linear, {"rtol": 2**-7, "atol": 0.02}, marks=NEEDS_BF16),
        pytest.param(Bf16Inner, {"rtol": 2**-7, "atol": 0.02}, marks=NEEDS_BF16),
        pytest.param(Bf16Logits, {"rtol": 2**-7, "atol": 0.02}, marks=NEEDS_BF16),
    ],
)


def product(layer: nn.Linear, x: Tensor) -> Tensor:
    """The output of a layer, computed in float64."""
    y = x.double() @ layer.weight.detach().double().T
    return (y if layer.bias is None else y + layer.bias.detach().double()).float()


@each_kind
@pytest.mark.parametrize("mean", [0.0, 0.5])
@pytest.mark.parametrize(
    ("features", "bias"), [((12, 20), True), ((300, 67), False), ((1, 1), True)]
)
@torch.no_grad()
def test_a_packed_layer_is_the_product_also_after_it_moved(
    kind: Any, tolerance: Any, features: tuple, bias: bool, mean: float
) -> None:
    layer = nn.Linear(*features, bias=bias)
    # Each output has its own scale of weights.
    scales = torch.logspace(0, -2, features[1])
    for parameter in layer.parameters():
        parameter.data.T.mul_(scales)
    layer = kind(layer)
    for shape in ((3,), (1, 1), (2, 3, 5)):
        x = torch.randn(*shape, features[0]).clamp(-2.5, 2.5) + mean
        expected = product(layer, x) / scales
        torch.testing.assert_close(layer(x).float() / scales, expected, **tolerance)
        layer.double()
        torch.testing.assert_close(layer(x.double()).float() / scales, expected)
        layer.float()
        torch.testing.assert_close(layer(x).float() / scales, expected, **tolerance)


@NEEDS_BF16
@torch.no_grad()
def test_the_greatest_logits_are_exact_in_bf16() -> None:
    for words in (1, 5, 40, 700):
        logits, x = Bf16Logits(nn.Linear(300, words)), torch.randn(2, 7, 300)
        y, rounded = logits(x), Bf16Linear(logits)(x)
        is_exact = (y - product(logits, x)).abs() <= 1e-4
        sixth = rounded.topk(min(6, words)).values[..., -1:]  # others may equal it in bf16
        assert is_exact[rounded > sixth].all()
        assert (is_exact | (y == rounded)).all()


@NEEDS_BF16
@torch.no_grad()
def test_auto_is_bf16_where_the_processor_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "WORTH_BF16", 1)
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


@pytest.mark.parametrize(
    ("precision", "kind"),
    [
        ("float32", PackedLinear),
        ("int8", Int8Linear),
        pytest.param("bf16", PackedLinear, marks=NEEDS_BF16),
    ],
)
def test_mhes_queries_keys_and_values_of_row_base_are_packed(precision: str, kind: Any) -> None:
    model = nn.ModuleDict({"in_proj": nn.Linear(512, 3 * 64), "q_proj": nn.Linear(512, 64)})
    packed.pack_linears(model, precision)
    assert [type(layer) for layer in model.values()] == [kind, nn.Linear]


def wide(**options: Any) -> nn.Module:
    """A model whose feed-forward layers are worth packing."""
    width = packed.WORTH_PACKING // 16
    return make_model(encoder_ffn_embed_dim=width, decoder_ffn_embed_dim=width, **options)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_precision_that_cannot_run_is_refused(precision: str, monkeypatch: Any) -> None:
    with pytest.raises(UserError, match=f"in {precision} .* float32 model"):
        wide(generation_precision=precision).half().make_generation_fast_()
    monkeypatch.setattr(packed, f"{precision}_available", lambda: False)
    with pytest.raises(UserError, match=f"in {precision} .* processor"):
        wide(generation_precision=precision).make_generation_fast_()
    wide(generation_precision="auto").make_generation_fast_()
    with pytest.raises(UserError, match="'bf61'; choose one of: float32, bf16"):
        wide(generation_precision="bf61").make_generation_fast_()


@pytest.mark.parametrize("precision", ["float32", "int8", pytest.param("bf16", marks=NEEDS_BF16)])
@torch.no_grad()
def test_a_packed_model_computes_the_same_and_can_be_copied(
    precision: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "WORTH_BF16", 1)
    model = make_model(attention=attention, generation_precision=precision)
    batch = make_batch()
    expected = model(**batch)[0]
    model.make_generation_fast_()
    assert isinstance(model.decoder.layers[0].self_attn.in_proj, PackedLinear)
    assert isinstance(model.decoder.layers[0].encoder_attn.q_proj, PackedLinear)
    result = model(**batch)[0]
    tolerance = {"float32": 1e-4, "bf16": 0.1, "int8": 0.5}[precision]
    torch.testing.assert_close(result, expected, rtol=0, atol=tolerance)
    assert torch.equal(copy.deepcopy(model)(**batch)[0], result)

"""The quick GELU and dropout are fairseq's, and are where fairseq's were."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules import FairseqDropout, gelu

from fairseq_mhe.models.transformer import QuickDropout, quick_gelu
from tests.fixtures.models import make_model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gelu_is_fairseqs(dtype: torch.dtype) -> None:
    x = torch.cat((torch.linspace(-20, 20, 1001), torch.randn(5000))).to(dtype)
    outer, results = torch.randn(6001).to(dtype), []
    for activation in (gelu, quick_gelu):
        leaf = x.clone().requires_grad_()
        y = activation(leaf)
        assert y.dtype == dtype
        results.append((y.detach(), *torch.autograd.grad(y, leaf, outer)))
    (y, gradient), (our_y, our_gradient) = results
    assert torch.equal(y, our_y)
    # The factor of a gradient goes from 0 to 1, in float32: without AVX-512 by another series.
    rounding = 2 * torch.finfo(torch.float32).eps if dtype == torch.bfloat16 else 0
    torch.testing.assert_close(our_gradient, gradient, rtol=0, atol=rounding)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_many_are_dropped_and_the_mean_stays(p: float) -> None:
    count = 400_001  # four at a time do not fit
    x = torch.ones(count, dtype=torch.bfloat16, requires_grad=True)
    y = QuickDropout(p)(x)
    kept = y != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=3 * (p * (1 - p) / count) ** 0.5)
    assert y[kept].unique().tolist() == pytest.approx([1 / (1 - p)], rel=2**-8)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    # Neighbours, which share a drawn number, are dropped independently of each other.
    both = (kept[:-1] & kept[1:]).double().mean().item()
    assert both == pytest.approx((1 - p) ** 2, abs=0.004)


def test_dropout_in_float32_and_in_evaluation_is_fairseqs() -> None:
    x, results = torch.randn(50, 16), []
    for kind in (QuickDropout, FairseqDropout):
        torch.manual_seed(3)
        results.append(kind(0.3)(x))
    assert torch.equal(*results)
    half = x.bfloat16()
    assert QuickDropout(0.3).eval()(half) is half
    assert QuickDropout(0.0)(half) is half


def test_they_are_in_every_place_of_a_model() -> None:
    model = make_model(dropout=0.2, activation_dropout=0.1, activation_fn="gelu")
    dropouts = [module for module in model.modules() if isinstance(module, FairseqDropout)]
    assert {type(module) for module in dropouts} == {QuickDropout}
    assert {module.p for module in dropouts} == {0.2, 0.1}
    assert len(dropouts) == 2 + 2 * 2 * 2  # of encoder and decoder; two a layer
    layers = [*model.encoder.layers, *model.decoder.layers]
    assert {layer.activation_fn for layer in layers} == {quick_gelu}
    model.make_generation_fast_(retain_dropout=True)
    assert all(module.apply_during_inference for module in dropouts)
    relu = make_model(activation_fn="relu").encoder.layers[0].activation_fn
    assert relu(torch.tensor(-1.0)) == 0

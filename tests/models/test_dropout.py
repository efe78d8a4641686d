"""Dropped values are as many as asked for, the others are scaled; in float32 it is fairseq's."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules import FairseqDropout

from fairseq_mhe.models.dropout import QuickDropout
from tests.fixtures.models import make_model


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_as_many_are_dropped_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(1)
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


def test_float32_and_evaluation_are_fairseqs() -> None:
    x, found = torch.randn(50, 16), []
    for kind in (QuickDropout, FairseqDropout):
        torch.manual_seed(3)
        found.append(kind(0.3)(x))
    assert torch.equal(*found)
    half = x.bfloat16()
    assert QuickDropout(0.3).eval()(half) is half
    assert QuickDropout(0.0)(half) is half


def test_it_is_in_every_place_of_a_model() -> None:
    model = make_model(dropout=0.2, activation_dropout=0.1)
    every = [module for module in model.modules() if isinstance(module, FairseqDropout)]
    assert {type(module) for module in every} == {QuickDropout}
    assert {module.p for module in every} == {0.2, 0.1}
    assert len(every) == 2 + 2 * 2 * 2  # of encoder and decoder; two a layer


@pytest.mark.parametrize(
    "modules",
    [
        None,
        ["MultiheadAttention"],
        ["TransformerEncoder", "TransformerDecoderLayerBase"],
        ["TransformerDecoder", "TransformerEncoderLayerBase"],
    ],
    ids=str,
)
def test_dropout_is_retained_where_fairseqs_own_is(modules: list[str] | None) -> None:
    """By --retain-dropout and --retain-dropout-modules, whose names are those of its classes."""
    sizes = {"dropout": 0.2, "activation_dropout": 0.1, "attention_dropout": 0.3}
    stock = make_model(arch="transformer", **sizes).eval()
    ours = make_model(attention="mha", **sizes).eval()
    found = []
    for model in (stock, ours):
        model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=modules)
        every = [module for module in model.modules() if isinstance(module, FairseqDropout)]
        names = (m.module_name for m in every if m.apply_during_inference)
        found.append(sorted(name for name in names if name != "MultiheadAttention"))
    assert found[0] == found[1]
    attention = ours.decoder.layers[0].self_attn
    x = torch.randn(3, 2, attention.embed_dim)
    same = torch.equal(attention(x, x, x)[0], attention(x, x, x)[0])
    assert same == (modules is not None and "MultiheadAttention" not in modules)

"""The quick GELU is fairseq's to the bit, or float32's, and is where fairseq's was."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules import gelu

from fairseq_mhe.models.activation import quick_gelu
from tests.fixtures.models import make_model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_it_is_fairseqs(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.cat((torch.linspace(-20, 20, 1001), torch.randn(5000))).to(dtype)
    outer, found = torch.randn(6001).to(dtype), []
    for activation in (gelu, quick_gelu):
        leaf = x.clone().requires_grad_()
        y = activation(leaf)
        assert y.dtype == dtype
        found.append((y.detach(), *torch.autograd.grad(y, leaf, outer)))
    (y, gradient), (our_y, our_gradient) = found
    assert torch.equal(y, our_y)
    # The factor of a gradient goes from 0 to 1, in float32: without AVX-512 by another series.
    rounding = 2 * torch.finfo(torch.float32).eps if dtype == torch.bfloat16 else 0
    torch.testing.assert_close(our_gradient, gradient, rtol=0, atol=rounding)


@pytest.mark.parametrize(("name", "expected"), [("gelu", quick_gelu), ("relu", torch.relu)])
def test_it_is_in_every_layer(name: str, expected: object) -> None:
    model = make_model(activation_fn=name)
    layers = [*model.encoder.layers, *model.decoder.layers]
    found = {layer.activation_fn for layer in layers}
    assert len(found) == 1
    assert (found == {quick_gelu}) == (expected is quick_gelu)

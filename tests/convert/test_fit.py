"""Least squares are the least: nothing near a fit has a smaller error, on the inputs that it was made for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import Attention, build_attention
from fairseq_mhe.convert.fit import FITS, Target, fit
from fairseq_mhe.convert.heads import Heads, write_out
from fairseq_mhe.convert.moments import Inputs, Moments
from fairseq_mhe.convert.pool import pool
from tests.fixtures.checkpoints import stir

C, N = 12, 3


def make_heads() -> Heads:
    torch.manual_seed(2)
    return write_out(stir(build_attention("mha", C, N, bias=True, self_attention=True)).double())


def make_inputs() -> tuple[Tensor, Inputs]:
    """400 vectors (400, C), some directions of which vary more than others and whose mean is not 0; their moments."""
    generator = torch.Generator().manual_seed(4)
    scale = torch.linspace(0.2, 2, C, dtype=torch.float64)
    x = torch.randn(400, C, generator=generator, dtype=torch.float64) * scale + 0.5
    moments = Moments(x.mean(dim=0), torch.cov(x.T, correction=0))
    return x, Inputs(moments, moments)


def made(kind: str, parameters: dict[str, Tensor], **options: Any) -> Attention:
    attention = build_attention(kind, C, N, self_attention=True, bias=True, **options).double()
    attention.load_state_dict(parameters)
    return attention


def errors(heads: Heads, other: Heads, x: Tensor) -> tuple[float, float]:
    """Mean square errors over pairs of ``x`` (P, C): of scores, but for what a softmax ignores, and of outputs."""

    def scores(h: Heads) -> Tensor:
        query = torch.einsum("pc,nkc->npk", x, h.query) + h.query_bias.unsqueeze(1)
        found = h.scale * query @ torch.einsum("pc,nkc->nkp", x, h.key)  # (n, P, P)
        return found - found.mean(dim=2, keepdim=True)

    def outputs(h: Heads) -> Tensor:
        return x @ h.outputs().transpose(1, 2)  # (n, P, C)

    moved = outputs(heads) - outputs(other)
    return (
        float((scores(heads) - scores(other)).square().mean()),
        float((moved - moved.mean(dim=1, keepdim=True)).square().mean()),
    )


@pytest.mark.parametrize("kind", ["mqa", "gqa", "mhe_mul"])
def test_nothing_near_is_better(kind: str) -> None:
    """(MHE-Add's one score for all heads is fitted to their mean, which is no least square of each.)"""
    heads, (x, inputs) = make_heads(), make_inputs()
    options = {"kv_heads": 1} if kind == "gqa" else {}
    found = fit(kind, heads, inputs, Target(C // N, bias=True, iterations=3000))
    best = errors(heads, write_out(made(kind, found, **options)), x)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        near = {
            name: value + 0.02 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
            for name, value in found.items()
        }
        score, output = errors(heads, write_out(made(kind, near, **options)), x)
        assert score > best[0]
        assert output > best[1]


@pytest.mark.parametrize("kind", FITS)
def test_it_is_better_than_the_mean(kind: str) -> None:
    heads, (x, inputs) = make_heads(), make_inputs()
    options, target = ({"kv_heads": 1} if kind == "gqa" else {}), Target(C // N, bias=True)
    both = (fit(kind, heads, inputs, target), pool(kind, heads, target))
    fitted, meant = (sum(errors(heads, write_out(made(kind, each, **options)), x)) for each in both)
    assert fitted < meant


@pytest.mark.parametrize("kind", FITS)
def test_constants_are_kept(kind: str) -> None:
    """At the inputs' mean the heads' outputs add up to what they did, whatever was approximated."""
    heads, (_, inputs) = make_heads(), make_inputs()
    options = {"kv_heads": 1} if kind == "gqa" else {}
    other = write_out(made(kind, fit(kind, heads, inputs, Target(C // N, bias=True)), **options))
    mean = inputs.memory.mean
    before, after = (h.outputs().sum(dim=0) @ mean + h.constant() for h in (heads, other))
    torch.testing.assert_close(after, before)


def test_the_offset_of_mhe_mul_counts() -> None:
    heads, (x, inputs) = make_heads(), make_inputs()
    found = []
    for offset in (1.0, 0.0):
        parameters = fit("mhe_mul", heads, inputs, Target(C // N, bias=True, offset=offset))
        found.append(
            errors(heads, write_out(made("mhe_mul", parameters, head_embedding_offset=offset)), x)
        )
    assert found[0] == pytest.approx(found[1])


def test_pool_refuses_other_widths() -> None:
    with pytest.raises(ValueError, match="heads' keys are 4 wide and only 3 fit"):
        pool("mqa", make_heads(), Target(3))

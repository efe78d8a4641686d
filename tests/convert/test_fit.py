"""Least squares are the least: nothing near a fit has a smaller error on its inputs."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import Attention, build_attention
from fairseq_mhe.attention.written_out import WrittenOut
from fairseq_mhe.convert.change_kind import TARGETS
from fairseq_mhe.convert.fit import FIT, Problem
from fairseq_mhe.convert.moments import Inputs, Moments
from tests.fixtures.checkpoints import stir

C, N = 12, 3
#: Of alternating least squares: few are enough.
ROUNDS = 10


def make_heads() -> WrittenOut:
    torch.manual_seed(2)
    mha = build_attention("mha", C, N, bias=True)
    return stir(mha).double().written_out()


def make_inputs() -> tuple[Tensor, Inputs]:
    """400 vectors (400, C), more various in some directions, with a mean; and their moments."""
    generator = torch.Generator().manual_seed(4)
    scale = torch.linspace(0.2, 2, C, dtype=torch.float64)
    x = torch.randn(400, C, generator=generator, dtype=torch.float64) * scale + 0.5
    moments = Moments(C)
    moments.add(x)
    return x, Inputs(moments, moments)


def new(kind: str, **options: Any) -> Attention:
    """A sublayer of ``kind``, with one group where it has groups."""
    groups = {"kv_heads": 1} if kind == "gqa" else {}
    return build_attention(kind, C, N, bias=True, **groups, **options).double()


def made(attention: Attention, parameters: dict[str, Tensor]) -> WrittenOut:
    """The heads of a sublayer with these parameters."""
    attention.load_state_dict(parameters)
    return attention.written_out()


def errors(heads: WrittenOut, other: WrittenOut, x: Tensor) -> tuple[float, float]:
    """Mean square errors over pairs of ``x`` (P, C): of scores as softmax sees them, of outputs."""

    def scores(h: WrittenOut) -> Tensor:
        query = torch.einsum("pc,nkc->npk", x, h.query) + h.query_bias.unsqueeze(1)
        found = h.scale * query @ torch.einsum("pc,nkc->nkp", x, h.key)  # (n, P, P)
        return found - found.mean(dim=2, keepdim=True)

    def outputs(h: WrittenOut) -> Tensor:
        return x @ (h.output @ h.value).transpose(1, 2)  # (n, P, C)

    moved = outputs(heads) - outputs(other)
    return (
        float((scores(heads) - scores(other)).square().mean()),
        float((moved - moved.mean(dim=1, keepdim=True)).square().mean()),
    )


@pytest.mark.parametrize("kind", ["mqa", "gqa", "mhe_mul", "mhe_add"])
def test_nothing_near_is_better(kind: str) -> None:
    heads, (x, inputs) = make_heads(), make_inputs()
    found = FIT[kind](Problem(new(kind), heads, inputs, iterations=3000))
    best = errors(heads, made(new(kind), found), x)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        near = {
            name: value + 0.02 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
            for name, value in found.items()
        }
        score, output = errors(heads, made(new(kind), near), x)
        assert score > best[0]
        assert output > best[1]


@pytest.mark.parametrize("kind", TARGETS)
def test_constants_are_kept(kind: str) -> None:
    """At the inputs' mean the heads' outputs add up to what they did, whatever was approximated."""
    heads, (_, inputs) = make_heads(), make_inputs()
    other = made(new(kind), FIT[kind](Problem(new(kind), heads, inputs, ROUNDS)))
    mean = inputs.memory.mean

    def output(h: WrittenOut) -> Tensor:
        values = h.value @ mean + h.value_bias  # (n, d)
        return torch.einsum("ncd,nd->c", h.output, values) + h.output_bias

    torch.testing.assert_close(output(other), output(heads))


def test_the_offset_of_mhe_mul_counts() -> None:
    heads, (x, inputs) = make_heads(), make_inputs()
    found = []
    for offset in (1.0, 0.0):
        attention = new("mhe_mul", head_embedding_offset=offset)
        parameters = FIT["mhe_mul"](Problem(attention, heads, inputs))
        found.append(errors(heads, made(attention, parameters), x))
    assert found[0] == pytest.approx(found[1])


def test_moments() -> None:
    x, inputs = make_inputs()
    torch.testing.assert_close(inputs.query.mean, x.mean(dim=0))
    torch.testing.assert_close(inputs.query.second_moment, x.T @ x / len(x))
    unknown = Moments(C)
    for matrix in (unknown.covariance, unknown.second_moment):
        assert torch.equal(matrix, torch.eye(C, dtype=torch.float64))

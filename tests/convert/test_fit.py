"""Each fit is a least squares solution: no parameters near it have a smaller error."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import Attention, build_attention
from fairseq_mhe.attention.plain_heads import PlainHeads
from fairseq_mhe.convert.change_kind import TARGETS
from fairseq_mhe.convert.fit import FIT, Problem
from fairseq_mhe.convert.moments import Inputs, Moments
from fairseq_mhe.convert.stock_heads import separate
from tests.fixtures.checkpoints import stir

C, N = 12, 3
#: Rounds of alternating least squares where the result need not be the best.
ROUNDS = 10


def make_heads() -> PlainHeads:
    torch.manual_seed(2)
    mha = build_attention("mha", C, N, bias=True)
    return stir(mha).double().folded()


def make_inputs() -> tuple[Tensor, Inputs]:
    """Return 400 vectors (400, C) with a mean and unequal variances, and their moments."""
    generator = torch.Generator().manual_seed(4)
    scale = torch.linspace(0.2, 2, C, dtype=torch.float64)
    x = torch.randn(400, C, generator=generator, dtype=torch.float64) * scale + 0.5
    moments = Moments(C)
    moments.add(x)
    return x, Inputs(moments, moments)


def build_sublayer(kind: str, **options: Any) -> Attention:
    """Return a new sublayer of ``kind``; gqa has one group."""
    groups = {"kv_heads": 1} if kind == "gqa" else {}
    return build_attention(kind, C, N, bias=True, **groups, **options).double()


def heads_of(attention: Attention, parameters: dict[str, Tensor]) -> PlainHeads:
    """Return the heads of a sublayer with these parameters."""
    attention.load_state_dict(parameters)
    return separate(attention.folded(), attention.num_heads)


def errors(heads: PlainHeads, other: PlainHeads, x: Tensor) -> tuple[float, float]:
    """Mean square errors over pairs of ``x`` (P, C) of scores and of outputs, without constants."""

    def scores(h: PlainHeads) -> Tensor:
        query = torch.einsum("pc,nkc->npk", x, h.query) + h.query_bias.unsqueeze(1)
        products = h.scale * query @ torch.einsum("pc,nkc->nkp", x, h.key)  # (n, P, P)
        return products - products.mean(dim=2, keepdim=True)

    def outputs(h: PlainHeads) -> Tensor:
        return x @ (h.output @ h.value).transpose(1, 2)  # (n, P, C)

    difference = outputs(heads) - outputs(other)
    return (
        float((scores(heads) - scores(other)).square().mean()),
        float((difference - difference.mean(dim=1, keepdim=True)).square().mean()),
    )


@pytest.mark.parametrize("kind", ["mqa", "gqa", "mhe_mul"])
def test_no_parameters_near_a_fit_have_a_smaller_error(kind: str) -> None:
    heads, (x, inputs) = make_heads(), make_inputs()
    fitted = FIT[kind](Problem(build_sublayer(kind), heads, inputs, iterations=3000))
    best = errors(heads, heads_of(build_sublayer(kind), fitted), x)
    generator = torch.Generator().manual_seed(1)
    step = 0.02 if kind == "mhe_mul" else 1e-4  # least squares in turn end near the best only
    for _ in range(20):
        near = {
            name: value + step * torch.randn(value.shape, generator=generator, dtype=torch.float64)
            for name, value in fitted.items()
        }
        score, output = errors(heads, heads_of(build_sublayer(kind), near), x)
        assert score > best[0]
        assert output > best[1]


@pytest.mark.parametrize("kind", TARGETS)
def test_outputs_at_the_mean_input_are_kept(kind: str) -> None:
    """Red if a fit moves the sum of the heads' outputs at the mean of the inputs."""
    heads, (_, inputs) = make_heads(), make_inputs()
    other = heads_of(
        build_sublayer(kind), FIT[kind](Problem(build_sublayer(kind), heads, inputs, ROUNDS))
    )
    mean = inputs.memory.mean

    def output(h: PlainHeads) -> Tensor:
        values = h.value @ mean + h.value_bias  # (n, d)
        return torch.einsum("ncd,nd->c", h.output, values) + h.output_bias

    torch.testing.assert_close(output(other), output(heads))

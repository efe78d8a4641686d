"""What is particular to composed queries: how they start, and what is made once for generation."""

from __future__ import annotations

import pytest
import torch

from fairseq_mhe.attention import KINDS, Attention, build_attention
from fairseq_mhe.attention.composed import ComposedQueryAttention
from fairseq_mhe.attention.mhe_turn import cosine_transform
from tests.attention.conftest import make_layer, random

COMPOSED = [name for name, kind in KINDS.items() if issubclass(kind, ComposedQueryAttention)]
WITH_HEADS = [name for name in COMPOSED if name != "mhe_gate"]
SIGNS = {
    "mhe_turn": ("first_scale", "middle_scale", "last_scale"),
    "mhe_input": ("input_scale",),
    "mqa_tied": ("input_scale",),
    "mqa_tied_skv": ("input_scale",),
}


@pytest.mark.parametrize("kind", SIGNS)
def test_heads_start_with_random_signs_and_other_queries(kind: str) -> None:
    torch.manual_seed(0)
    layer = build_attention(kind, 256, 4)
    for name in SIGNS[kind]:
        signs = layer.get_parameter(name)
        assert set(signs.flatten().tolist()) == {-1.0, 1.0}
        assert abs(signs.mean().item()) < 4 / signs.numel() ** 0.5
    weight, _ = layer.composed()  # (n, d, C)
    flat = torch.nn.functional.normalize(weight.flatten(1), dim=1)
    alike = (flat @ flat.T - torch.eye(4)).abs().max().item()
    assert alike < 0.25, "MHE-Mul's are the same but for a few percent"


@pytest.mark.parametrize("width", [1, 2, 7, 45, 64])
def test_the_transform_is_orthogonal_for_every_width(width: int) -> None:
    found = cosine_transform(width, torch.float64, torch.device("cpu"))
    one = torch.eye(width, dtype=torch.float64)
    torch.testing.assert_close(found @ found.T, one, rtol=0, atol=1e-13)


def test_a_turn_keeps_the_length_of_the_query_at_the_start() -> None:
    layer = build_attention("mhe_turn", 60, 4, head_dim=15).double()
    x = random(5, 3, 60)
    lengths = layer.q_proj(x).norm(dim=-1).T.unsqueeze(1).expand(-1, 4, -1)  # (B, n, T)
    torch.testing.assert_close(layer.queries(x).norm(dim=-1), lengths)


@pytest.mark.parametrize("kind", WITH_HEADS)
def test_shared_projections_start_as_one_head_of_mha_unless_asked_otherwise(kind: str) -> None:
    def largest(name: str, **options: str) -> float:
        layer = build_attention(name, 512, 8, **options)
        weight = getattr(layer, "k_proj", None) or layer.kv_proj
        return weight.weight.abs().max().item()

    assert largest(kind) == pytest.approx(largest("mha"), rel=1e-2)
    packed = largest(kind, shared_projection_init="packed")
    assert packed == pytest.approx(largest("mhe_mul"), rel=1e-2)


@pytest.mark.parametrize("kind", COMPOSED)
def test_what_was_composed_for_generation_is_forgotten_in_training(kind: str) -> None:
    layer, x = make_layer(kind), random(5, 3, 24)
    layer.make_generation_fast_()
    generating = layer(x)[0]
    layer.train()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1.1)
    changed = layer(x)[0]
    assert not torch.allclose(changed, generating)
    layer.eval()
    torch.testing.assert_close(layer(x)[0], changed)
    assert set(layer.state_dict()) == set(make_layer(kind).state_dict())


@pytest.mark.parametrize("kind", [*WITH_HEADS, "mqa_skv"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_means_of_its_heads_are_multi_query_attention_exactly(kind: str, bias: bool) -> None:
    """What ``convert --to mqa --method mean`` makes of it."""
    one = make_layer(kind, bias=bias)
    other: Attention = make_layer("mqa", bias=bias)
    other.load_state_dict(other.pooled(one.written_out()))
    x = random(5, 3, 24)
    torch.testing.assert_close(other(x)[0], one(x)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", WITH_HEADS)
def test_a_layer_that_is_written_out_stays_as_it_is(kind: str) -> None:
    layer = make_layer(kind, dtype=torch.float32)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer.written_out()
    for name, value in layer.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[name])

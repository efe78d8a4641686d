"""What is particular to MHE: the parameters' meaning, their initial values and their number."""

import pytest
import torch

from fairseq_mhe.attention import build_attention
from tests.attention.conftest import make_layer, random


@pytest.mark.parametrize("kind", ["mhe_mul", "mhe_add"])
def test_head_embeddings_start_at_n_0_std(kind: str) -> None:
    torch.manual_seed(0)
    for std in (None, 0.1):
        layer = build_attention(kind, 2048, 32, head_embedding_std=std)
        for name in ("query_embedding", "key_embedding", "value_embedding"):
            embedding = layer.get_parameter(name)
            assert embedding.shape == (32, 64)
            assert embedding.std().item() == pytest.approx(std or 0.02, rel=0.1)
            assert abs(embedding.mean().item()) < 3 * (std or 0.02) / 2048**0.5


@pytest.mark.parametrize("kind", ["mhe_mul", "mhe_add"])
@pytest.mark.parametrize(
    ("init", "expected"),
    [
        (None, (3 / (512 + 64)) ** 0.5),
        ("packed", (3 / (512 + 64)) ** 0.5),
        ("xavier", (6 / (512 + 64)) ** 0.5),
        # fairseq's of a 512 x 512 projection that is packed with two others
        ("head", (3 / (512 + 512)) ** 0.5),
    ],
)
def test_shared_projections_start_uniform_within_a_bound(
    kind: str, init: str | None, expected: float
) -> None:
    layer = build_attention(kind, 512, 8, shared_projection_init=init)
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
        assert projection.weight.abs().max().item() == pytest.approx(expected, rel=1e-3)
        assert projection.weight.std().item() == pytest.approx(expected / 3**0.5, rel=0.02)
    assert layer.out_proj.weight.abs().max().item() == pytest.approx((6 / 1024) ** 0.5, rel=1e-3)


def test_filters_start_as_signs_and_projections_as_one_head_of_mha() -> None:
    torch.manual_seed(0)
    layer, mha = build_attention("mhe_conv", 512, 8), build_attention("mha", 512, 8)
    signs = layer.taps * 3**0.5  # (n, 3, d)
    torch.testing.assert_close(signs.abs(), torch.ones(8, 3, 64))
    assert abs(signs.mean().item()) < 4 / signs.numel() ** 0.5
    assert layer.k_proj.weight.abs().max().item() == pytest.approx(
        mha.k_proj.weight.abs().max().item(), rel=1e-3
    )


def test_offset_zero_multiplies_by_the_embedding_alone() -> None:
    layer = make_layer("mhe_mul", head_embedding_offset=0.0)
    shifted = make_layer("mhe_mul")
    with torch.no_grad():
        for name in ("query_embedding", "key_embedding", "value_embedding"):
            layer.get_parameter(name).copy_(shifted.get_parameter(name) + 1)
    x = random(5, 3, 24)
    torch.testing.assert_close(layer(x)[0], shifted(x)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_mul_has_one_useful_vector_a_head(bias: bool) -> None:
    """(1 + e^Q) (1 + e^K) act as one, and (1 + e^V) is a part of W_O."""
    layer, other = make_layer("mhe_mul", bias=bias), make_layer("mhe_mul", bias=bias)
    product = (1 + layer.query_embedding) * (1 + layer.key_embedding)
    other.query_embedding.copy_(product - 1)
    other.key_embedding.zero_()
    other.value_embedding.zero_()
    other.out_proj.weight.mul_(1 + layer.value_embedding.flatten())
    x = random(5, 3, 24)
    torch.testing.assert_close(other(x)[0], layer(x)[0], rtol=0, atol=1e-12)


@torch.no_grad()
def test_add_has_one_useful_vector_a_head() -> None:
    """e^K is ignored by the softmax, and e^V is a constant of the output."""
    layer, other = make_layer("mhe_add", bias=True), make_layer("mhe_add", bias=True)
    constant = layer.out_proj.weight @ layer.value_embedding.flatten()  # (C,)
    other.key_embedding.zero_()
    other.value_embedding.zero_()
    other.out_proj.bias.add_(constant)
    x = random(5, 3, 24)
    torch.testing.assert_close(other(x)[0], layer(x)[0], rtol=0, atol=1e-12)


def test_additive_key_embedding_has_no_effect_but_a_zero_gradient() -> None:
    layer = make_layer("mhe_add")
    x = random(5, 3, 24)
    before, _ = layer(x)
    before.sum().backward()
    assert torch.count_nonzero(layer.key_embedding.grad) == 0
    with torch.no_grad():
        layer.key_embedding.normal_(std=5)
    torch.testing.assert_close(layer(x)[0], before, rtol=0, atol=0)

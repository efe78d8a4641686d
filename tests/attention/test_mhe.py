"""MHE's own parameters: the meaning and initial values of embeddings, filters and offset."""

import pytest
import torch

from fairseq_mhe.attention import build_attention


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


#: Squared bounds of uniform initial weights; "head" is that of fairseq's 512 x 512 projections.
BOUNDS = {None: 3 / 576, "packed": 3 / 576, "xavier": 6 / 576, "head": 3 / 1024}


@pytest.mark.parametrize("kind", ["mhe_mul", "mhe_add"])
@pytest.mark.parametrize("init", BOUNDS)
def test_shared_projections_start_uniform_within_a_bound(kind: str, init: str | None) -> None:
    layer = build_attention(kind, 512, 8, shared_projection_init=init)
    expected = BOUNDS[init] ** 0.5
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
        assert projection.weight.abs().max().item() == pytest.approx(expected, rel=1e-3)
        assert projection.weight.std().item() == pytest.approx(expected / 3**0.5, rel=0.02)
    assert layer.out_proj.weight.abs().max().item() == pytest.approx((6 / 1024) ** 0.5, rel=1e-3)


def test_filters_start_as_random_signs_and_projections_as_one_head_of_mha() -> None:
    torch.manual_seed(0)
    layer, mha = build_attention("mhe_conv", 512, 8), build_attention("mha", 512, 8)
    signs = layer.taps * 3**0.5  # (n, 3, d)
    torch.testing.assert_close(signs.abs(), torch.ones(8, 3, 64))
    assert abs(signs.mean().item()) < 4 / signs.numel() ** 0.5
    largest = (x.k_proj.weight.abs().max() for x in (layer, mha))
    torch.testing.assert_close(*largest, rtol=1e-3, atol=0)

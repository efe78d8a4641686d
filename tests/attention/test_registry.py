"""The registry: what can be built, and one clear line for what cannot."""

from __future__ import annotations

import math

import pytest

from fairseq_mhe.attention import KINDS, build_attention


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown attention 'mhe'.*mha, mhe_mul, mhe_add"):
        build_attention("mhe", 8, 2)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((10, 4), {}, "embed_dim 10 is not divisible by num_heads 4"),
        ((8, 0), {}, "num_heads 0 must both be positive"),
        ((8, 2), {"head_dim": 0}, "head_dim must be positive, not 0"),
        (
            (8, 2),
            {"self_attention": True, "kdim": 4},
            "self-attention needs kdim and vdim equal to embed_dim 8",
        ),
        ((8, 2), {"self_attention": True, "encoder_decoder_attention": True}, "not both"),
        ((8, 2), {"q_noise": 0.1}, "quantisation noise"),
        ((8, 2), {"colour": 1}, "does not use colour"),
    ],
)
def test_bad_sizes_and_options_are_named(
    kind: str, sizes: tuple[int, int], options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention(kind, *sizes, **options)


def test_an_option_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'mha' does not use head_embedding_std"):
        build_attention("mha", 8, 2, head_embedding_std=0.1)
    with pytest.raises(ValueError, match="'mhe_add' does not use head_embedding_offset"):
        build_attention("mhe_add", 8, 2, head_embedding_offset=1.0)
    with pytest.raises(ValueError, match="'mqa' does not use kv_heads"):
        build_attention("mqa", 8, 2, kv_heads=2)


@pytest.mark.parametrize("kind", ["mhe_mul", "mhe_add"])
@pytest.mark.parametrize("std", [-1.0, math.nan, math.inf])
def test_a_spread_that_is_none_is_refused(kind: str, std: float) -> None:
    with pytest.raises(ValueError, match=f"must be 0 or more, but is {std}"):
        build_attention(kind, 8, 2, head_embedding_std=std)


@pytest.mark.parametrize("offset", [math.nan, math.inf, -math.inf])
def test_an_offset_that_is_no_number_is_refused(offset: float) -> None:
    with pytest.raises(ValueError, match=f"head_embedding_offset must be a number, not {offset}"):
        build_attention("mhe_mul", 8, 2, head_embedding_offset=offset)


@pytest.mark.parametrize(
    ("kind", "option"), [("mla", "latent_dim"), ("collaborative", "collaborative_dim")]
)
def test_a_width_of_nothing_is_refused(kind: str, option: str) -> None:
    assert build_attention(kind, 8, 2, **{option: 1}).key_head_dim == 1
    with pytest.raises(ValueError, match=f"{option} must be positive, not 0"):
        build_attention(kind, 8, 2, **{option: 0})


@pytest.mark.parametrize("dropout", [-0.1, 1.1, math.nan])
def test_a_dropout_that_is_no_probability_is_refused(dropout: float) -> None:
    with pytest.raises(ValueError, match=f"dropout is a probability, not {dropout}"):
        build_attention("mha", 8, 2, dropout=dropout)


def test_every_kind_is_documented_with_its_source() -> None:
    for name, cls in KINDS.items():
        module = __import__(cls.__module__, fromlist=["_"])
        assert "20" in module.__doc__, f"{name}: the module's docstring names no publication"
        assert "Parameters" in module.__doc__, (
            f"{name}: the module's docstring gives no parameter formula"
        )

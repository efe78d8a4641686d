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


def test_a_spread_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 0 or more, but is -1"):
        build_attention("mhe_add", 8, 2, head_embedding_std=-1.0)


@pytest.mark.parametrize(
    ("kind", "option"),
    [("gqa", "kv_heads"), ("mla", "latent_dim"), ("collaborative", "collaborative_dim")],
)
def test_a_size_of_nothing_is_refused(kind: str, option: str) -> None:
    build_attention(kind, 8, 2, **{option: 1})
    with pytest.raises(ValueError, match=f"{option} must be positive, not 0"):
        build_attention(kind, 8, 2, **{option: 0})


@pytest.mark.parametrize("kind", [name for name, cls in KINDS.items() if cls.keys_are_values])
def test_keys_and_values_of_one_input(kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} .* kdim 8 and vdim 4 differ"):
        build_attention(kind, 8, 2, vdim=4)


@pytest.mark.parametrize("dropout", [-0.1, 1.1, math.nan])
def test_a_dropout_that_is_no_probability_is_refused(dropout: float) -> None:
    with pytest.raises(ValueError, match=f"dropout is a probability, not {dropout}"):
        build_attention("mha", 8, 2, dropout=dropout)

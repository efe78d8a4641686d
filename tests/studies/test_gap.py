"""The variants of the gap study and of the precision study: what each changes, and its size."""

from __future__ import annotations

import argparse

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.recipes import recipe as recipe_of
from studies import precision
from studies.gap import QUESTIONS, variants
from studies.study import MHA, MHE, Variant


def every(row: str = "tiny") -> list[Variant]:
    return list(variants(argparse.Namespace(), recipe_of(row)))


def parameters(row: str, variant: Variant) -> int:
    """Of the attention in the model that fairseq-train's words would build."""
    of_training = ("lr", "head_embedding_weight_decay", "optimizer", "fp16_no_flatten_grads")
    options = {name: v for name, v in variant.options.items() if name not in of_training}
    places = {f"{place}_attention": kind for place, kind in variant.attention.items()}
    model = build_on_meta(row, variant.attention["encoder"], **places, **options)
    return attention_parameters(model)


@pytest.mark.parametrize("row", ["tiny", "iwslt"])
def test_variants_of_heads_are_as_large_as_the_default(row: str) -> None:
    sizes = {variant.name: parameters(row, variant) for variant in every(row)}
    assert len(sizes) == len(every(row)) == 21
    assert {variant.question for variant in every(row)} == set(QUESTIONS)
    for variant in every(row):
        if variant.question == "heads":
            assert sizes[variant.name] == pytest.approx(sizes[MHE], rel=0.05), variant.name
        if variant.question in ("init", "embeddings", "decay"):
            assert sizes[variant.name] == sizes[MHE]
    assert all(sizes[MHE] < sizes[f"only-{place}"] < sizes[MHA] for place in PLACES)


def test_a_variant_changes_one_thing_of_the_recipe() -> None:
    rates = {variant.name: variant.options for variant in every() if variant.question == "rate"}
    assert rates == {
        "lr-half": {"lr": [0.0015]},
        "lr-double": {"lr": [0.006]},
        "mha-lr-half": {"lr": [0.0015]},
        "mha-lr-double": {"lr": [0.006]},
    }
    for variant in every():
        mixed = len(set(variant.attention.values())) > 1
        assert bool(variant.options) + mixed <= 1


def test_precision_is_compared_within_a_kind() -> None:
    found = precision.variants(argparse.Namespace(precision="auto"), recipe_of("tiny"))
    assert [(each.reference, each.options["bf16"]) for each in found] == [
        *((f"{kind}-float32", None) for kind in (MHA, MHE)),
        *((f"{kind}-float32", True) for kind in (MHA, MHE)),
    ]
    with pytest.raises(UserError, match="--precision is what this study varies"):
        precision.variants(argparse.Namespace(precision="bf16"), recipe_of("tiny"))

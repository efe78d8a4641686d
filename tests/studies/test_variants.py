"""The variants of the studies: the one setting that each changes, and their sizes."""

from argparse import Namespace

import pytest

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.recipes import recipe as recipe_of
from studies.variants import MHA, MHE, STUDIES, Variant, equal_budget, fitting, gap, precision


def parameters(row: str, variant: Variant) -> int:
    """Count the attention parameters of the model that fairseq-train would build."""
    options = {name: v for name, v in variant.options.items() if name != "lr"}
    places = {f"{place}_attention": kind for place, kind in variant.attention.items()}
    model = build_on_meta(row, variant.attention["encoder"], **places, **options)
    return attention_parameters(model)


@pytest.mark.parametrize("row", ["tiny", "iwslt"])
def test_each_variant_of_the_gap_study_changes_one_thing(row: str) -> None:
    recipe = recipe_of(row)
    variants = gap(Namespace(), recipe)
    sizes = {variant.name: parameters(row, variant) for variant in variants}
    assert len(sizes) == len(variants) == 19
    assert {variant.question for variant in variants} == set(STUDIES["gap-study"].questions)
    for variant in variants:
        mixed = len(set(variant.attention.values())) > 1
        assert bool(variant.options) + mixed <= 1
        if variant.question == "heads":
            assert sizes[variant.name] == pytest.approx(sizes[MHE], rel=0.05), variant.name
        if variant.question in ("init", "embeddings"):
            assert sizes[variant.name] == sizes[MHE]
    assert all(sizes[MHE] < sizes[f"only-{place}"] < sizes[MHA] for place in PLACES)
    (rate,) = recipe.training.options["lr"]
    rates = {each.name: each.options["lr"][0] / rate for each in variants if "lr" in each.name}
    assert rates == {"lr-half": 0.5, "lr-double": 2, "mha-lr-half": 0.5, "mha-lr-double": 2}


def test_the_precision_study_compares_within_a_kind() -> None:
    variants = precision(Namespace(precision="auto"), recipe_of("tiny"))
    assert [(each.reference, each.options["bf16"]) for each in variants] == [
        *((f"{kind}-float32", None) for kind in (MHA, MHE)),
        *((f"{kind}-float32", True) for kind in (MHA, MHE)),
    ]
    with pytest.raises(UserError, match="--precision is what this study varies"):
        precision(Namespace(precision="bf16"), recipe_of("tiny"))


@pytest.mark.parametrize(("row", "budget"), [("tiny", None), ("small", 1_500_000)])
def test_equal_budget_variants_are_near_the_budget(row: str, budget: int | None) -> None:
    variants = equal_budget(Namespace(budget=budget, within=0.01), recipe_of(row))
    names = [variant.name for variant in variants]
    assert names[:2] == [MHE, MHA]
    assert len(names) == len(set(names))
    for variant in variants[2:]:
        size = parameters(row, variant)
        assert size == pytest.approx(budget or 174_336, rel=0.01), variant.name
        assert (variant.question == "place") == (len(set(variant.attention.values())) > 1)
    kinds = {each.attention["cross"] for each in variants if each.question != "place"}
    assert kinds >= set(KINDS) - {"el"} - ({"mha", "skv"} if row == "small" else set())
    (head, *_) = [variant for variant in variants if variant.question == "start"]
    assert head.options["shared_projection_init"] == "head"


def test_fitting_sizes_of_each_kind() -> None:
    """Near the row's four heads, half of them, and with the row's width; el has only one size."""
    sizes = {kind: fitting("tiny", (kind,) * 3, 174_336, 0.01) for kind in KINDS}
    assert sizes["mhe_mul"] == [(4, 32), (2, 45)]
    assert sizes["sha"] == [(3, 38), (2, 45)]
    assert sizes["mha"] == [(3, 19), (1, 57)]
    assert sizes["el"] == []

"""The variants of the study at equal budget: sizes by rule."""

from __future__ import annotations

import argparse

import pytest

from fairseq_mhe.attention import KINDS
from fairseq_mhe.runs.recipes import recipe as recipe_of
from studies.budget import fitting, variants
from studies.study import MHA, MHE
from tests.studies.test_gap import parameters


@pytest.mark.parametrize(("row", "budget"), [("tiny", None), ("small", 1_500_000)])
def test_every_kind_is_as_large_as_the_budget(row: str, budget: int | None) -> None:
    found = variants(argparse.Namespace(budget=budget, within=0.01), recipe_of(row))
    names = [variant.name for variant in found]
    assert names[:2] == [MHE, MHA]
    assert len(names) == len(set(names))
    for variant in found[2:]:
        size = parameters(row, variant)
        assert size == pytest.approx(budget or 174_336, rel=0.01), variant.name
        assert (variant.question == "place") == (len(set(variant.attention.values())) > 1)
    kinds = {each.attention["cross"] for each in found if each.question != "place"}
    assert kinds >= set(KINDS) - {"el"} - ({"mha", "skv"} if row == "small" else set())
    (head, *_) = [variant for variant in found if variant.question == "start"]
    assert head.options["shared_projection_init"] == "head"


def test_sizes_by_rule() -> None:
    """The row's four heads, half of them, and heads of the row's width; el is of one size only."""
    sizes = {kind: fitting("tiny", (kind,) * 3, 174_336, 0.01) for kind in KINDS}
    assert sizes["mhe_mul"] == [(4, 32), (2, 45)]
    assert sizes["sha"] == [(3, 38), (2, 45)]
    assert sizes["mha"] == [(3, 19), (1, 57)]
    assert sizes["el"] == []

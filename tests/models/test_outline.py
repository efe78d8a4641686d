"""The outline of a model: the same weights as the model that fairseq builds."""

from typing import Any

import pytest
from torch import nn

from fairseq_mhe.attention import KINDS
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import cache_bytes, costs, embedding_parameters
from fairseq_mhe.models.outline import outline

MIXED = {"attention": "mha", "encoder_attention": "mhe_mul", "cross_attention": "gqa"}


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    weights = model.named_parameters(remove_duplicate=False)
    return {name: tuple(weight.shape) for name, weight in weights}


def assert_same(row: str, vocabulary: int, **options: Any) -> None:
    model = outline(ROWS[row], vocabulary, **options)
    built = build_on_meta(row, options.pop("attention"), vocabulary, **options)
    assert shapes(model) == shapes(built)
    assert costs(model, source=7, past=5) == costs(built, source=7, past=5)
    assert cache_bytes(model) == cache_bytes(built)
    assert embedding_parameters(model) == embedding_parameters(built)


@pytest.mark.parametrize("row", ROWS)
def test_the_outline_of_a_row_is_that_of_the_built_model(row: str) -> None:
    assert_same(row, 1000, **MIXED)


@pytest.mark.parametrize("kind", KINDS)
def test_the_outline_of_a_kind_is_that_of_the_built_model(kind: str) -> None:
    assert_same("tiny", 77, attention=kind)

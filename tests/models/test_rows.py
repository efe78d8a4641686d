"""The options that ``training_flags`` names build the very same model."""

from __future__ import annotations

from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.rows import nearest_row, training_flags


@pytest.mark.parametrize("row", [*ROWS, *SMALL_ROWS])
def test_a_row_is_known_by_its_sizes(row: str) -> None:
    found = nearest_row({**ROWS, **SMALL_ROWS}[row].options())
    assert (found.name, found.differences) == (row, {})


@pytest.mark.parametrize(
    "different",
    [
        {},
        {"encoder_layers": 4, "share_all_embeddings": True},
        {
            "encoder_normalize_before": True,
            "activation_fn": "gelu",
            "share_decoder_input_output_embed": True,
        },
        {"attention": "collaborative", "collaborative_dim": 64, "attention_bias": True},
        {"attention": "gqa", "attention_kv_heads": 4, "attention_head_dim": 16},
    ],
)
def test_the_flags_build_the_same_model(different: dict[str, Any]) -> None:
    wanted = {"attention": "mha", **ROWS["base"].options(), **different}
    words = [
        "no-data",
        "--task",
        "translation",
        "--criterion",
        "cross_entropy",
        *training_flags(wanted),
    ]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    model = convert_namespace_to_omegaconf(args).model
    for name, value in wanted.items():
        assert getattr(model, name) == value, name

"""The options that ``training_options`` names build the very same model."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, sizes
from fairseq_mhe.models.families import TRANSLATION, training_options


@pytest.mark.parametrize("row", [*ROWS, *SMALL_ROWS])
def test_a_row_is_known_by_its_sizes(row: str) -> None:
    assert TRANSLATION.nearest_row(sizes(row).options()) == (row, {})


@pytest.mark.parametrize(
    "different",
    [
        {},
        {  # a row's that is pre-norm, but post-norm
            **SMALL_ROWS["tiny"].options(),
            "encoder_normalize_before": False,
            "decoder_normalize_before": False,
        },
        {
            "encoder_layers": 4,
            "share_all_embeddings": True,
            "attention": "collaborative",
            "collaborative_dim": 64,
            "attention_bias": True,
        },
        {
            "encoder_normalize_before": True,
            "activation_fn": "gelu",
            "share_decoder_input_output_embed": True,
            "attention": "gqa",
            "attention_kv_heads": 4,
            "attention_head_dim": 16,
        },
        {
            "attention": "mhe_mul",
            "head_embedding_offset": 0.0,
            "adaptive_softmax_cutoff": [10, 20],
            "adaptive_softmax_factor": 2.0,
            "encoder_learned_pos": True,
            "max_source_positions": 40,
            "merge_src_tgt_embed": True,
        },
    ],
)
def test_the_flags_build_the_same_model(different: dict[str, Any]) -> None:
    wanted = {"attention": "mha", **ROWS["base"].options(), **different}
    del wanted["dropout"]  # which is no size
    named = {"arch": "transformer_mhe", **wanted}
    words = ["no-data", "--task", "translation", "--criterion", "cross_entropy"]
    words += as_words(training_options(named))
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    model = convert_namespace_to_omegaconf(args).model
    assert {name: getattr(model, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("arch", "task", "different"),
    [
        ("transformer_lm_mhe_tiny", "language_modeling", {"decoder_input_dim": 32}),
        (
            "transformer_lm_mhe_tiny",
            "language_modeling",
            {"scale_heads": True, "scale_fc": True},
        ),
        (
            "transformer_lm_mhe_tiny",
            "language_modeling",
            {
                "adaptive_input": True,
                "adaptive_input_cutoff": "5,9",
                "decoder_learned_pos": True,
            },
        ),
        (
            "roberta_mhe_tiny",
            "masked_lm",
            {
                "untie_weights_roberta": True,
                "max_positions": 2000,
                "max_source_positions": 2000,
            },
        ),
    ],
)
def test_the_flags_of_a_language_model_build_the_same_one(
    arch: str, task: str, different: dict[str, Any]
) -> None:
    def parsed(*words: str) -> argparse.Namespace:
        asked = ["no-data", "--task", task, "--criterion", "cross_entropy", *words]
        return options.parse_args_and_arch(options.get_training_parser(), asked)

    wanted = {**vars(parsed("--arch", arch, "--attention", "mqa")), **different}
    found = vars(parsed(*as_words(training_options(wanted))))
    assert {name for name in wanted if found[name] != wanted[name]} == set()

"""fairseq's causal language model with its attention built by the registry."""

from __future__ import annotations

import argparse
from dataclasses import make_dataclass
from typing import Any, Self

from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import (
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
)
from fairseq.modules import AdaptiveInput
from fairseq.utils import eval_str_list
from torch import nn

from fairseq_mhe.models.options import OnePlaceConfig, check_options
from fairseq_mhe.models.roberta import check_block
from fairseq_mhe.models.stacks import AnyKind, Decoder

NAME = "transformer_lm_mhe"
PLACES = ("decoder",)

#: Every option of fairseq's language model and our own.
TransformerLMMHEConfig = make_dataclass(
    "TransformerLMMHEConfig",
    [],
    bases=(OnePlaceConfig, TransformerLanguageModelConfig),
    namespace={"__module__": __name__},
)


def check_lm(args: Any) -> None:
    """Refuse what cannot work, before any data is read.

    Raises:
        ValueError: as `check_options`; embeddings of characters; or a block is longer than the
            model's positions.
    """
    if getattr(args, "character_embeddings", False):
        raise ValueError(f"{NAME} does not support --character-embeddings: leave it out")
    block, positions = (
        getattr(args, name, None) for name in ("tokens_per_sample", "max_target_positions")
    )
    check_block("--tokens-per-sample", block, "--max-target-positions", positions)
    check_options(args, PLACES, NAME)


@register_model(NAME)  # without the dataclass: see transformer.py
class TransformerLMMHEModel(AnyKind, TransformerLanguageModel):
    """A Transformer decoder without cross-attention, with any of ``KINDS`` as its attention."""

    PLACES = PLACES
    CONFIG = TransformerLMMHEConfig
    check = staticmethod(check_lm)

    @classmethod
    def assemble(cls, options: argparse.Namespace, task: Any) -> Self:
        """Called by `build_model`."""
        if options.decoder_layers_to_keep:
            options.decoder_layers = len(options.decoder_layers_to_keep.split(","))
        options.max_target_positions = _positions(options, task)
        config = TransformerConfig.from_namespace(options)
        table = cls._embeddings(options, task)
        return cls(Decoder(config, task.target_dictionary, table, no_encoder_attn=True))

    @classmethod
    def _embeddings(cls, args: argparse.Namespace, task: Any) -> nn.Module:
        """The table of words, or Baevski and Auli's (2019) of falling widths."""
        words = task.source_dictionary
        if not args.adaptive_input:
            return cls.build_embedding(args, words, args.decoder_input_dim)
        return AdaptiveInput(
            len(words),
            words.pad(),
            args.decoder_input_dim,
            args.adaptive_input_factor,
            args.decoder_embed_dim,
            eval_str_list(args.adaptive_input_cutoff, type=int),
        )


def _positions(args: argparse.Namespace, task: Any) -> int:
    """How many the model has: as many as a block of the task has tokens, unless told."""
    for options in (args, getattr(task, "args", None)):
        for name in ("max_target_positions", "tokens_per_sample"):
            value = getattr(options, name, None)
            if isinstance(value, int):  # else None, or a reference to an option of the task
                return value
    return DEFAULT_MAX_TARGET_POSITIONS

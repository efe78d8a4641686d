"""fairseq's causal language model with its attention built by the registry."""

from __future__ import annotations

import argparse
from dataclasses import make_dataclass
from typing import Any, Self

from fairseq.data import Dictionary
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

from fairseq_mhe.models.options import OnePlaceConfig
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


@register_model(NAME)  # without the dataclass: see transformer.py
class TransformerLMMHEModel(AnyKind, TransformerLanguageModel):
    """A Transformer decoder without cross-attention, with any of ``KINDS`` as its attention."""

    PLACES = PLACES
    CONFIG = TransformerLMMHEConfig

    @classmethod
    def assemble(cls, options: argparse.Namespace, task: Any) -> Self:
        """Called by `build_model`."""
        options.max_target_positions = _positions(options, task)
        config = TransformerConfig.from_namespace(options)
        table = _embeddings(cls, options, task.source_dictionary)
        return cls(Decoder(config, task.target_dictionary, table, no_encoder_attn=True))


def _embeddings(
    model: type[TransformerLMMHEModel], args: argparse.Namespace, words: Dictionary
) -> nn.Module:
    """The embedding table, or Baevski and Auli's (2019) tables of falling widths."""
    if not args.adaptive_input:
        return model.build_embedding(args, words, args.decoder_input_dim)
    return AdaptiveInput(
        len(words),
        words.pad(),
        args.decoder_input_dim,
        args.adaptive_input_factor,
        args.decoder_embed_dim,
        eval_str_list(args.adaptive_input_cutoff, type=int),
    )


def _positions(args: argparse.Namespace, task: Any) -> int:
    """The positions of the model: as many as a block of the task has tokens, unless given."""
    for options in (args, getattr(task, "args", None)):
        for name in ("max_target_positions", "tokens_per_sample"):
            value = getattr(options, name, None)
            if isinstance(value, int):  # not a reference such as ${task.tokens_per_sample}
                return value
    return DEFAULT_MAX_TARGET_POSITIONS

"""fairseq's causal language model with its attention built by the registry."""

from __future__ import annotations

import argparse
from dataclasses import make_dataclass
from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
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

from fairseq_mhe.common.cpu import keep_freed_memory
from fairseq_mhe.common.errors import one_clear_line
from fairseq_mhe.models.dropout import quicken_dropout
from fairseq_mhe.models.options import (
    OnePlaceConfig,
    check_options,
    check_tied,
    draw_as_before,
    plain_options,
)
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
        ValueError: as `check_options`; embeddings that no output can be tied to, or that fairseq
            would build without saying what is wrong; or a block is longer than the
            model's positions.
    """
    if getattr(args, "character_embeddings", False):
        raise ValueError(f"{NAME} does not support --character-embeddings: leave it out")
    if getattr(args, "tie_adaptive_weights", False):
        pairs = (("cutoff", None), ("factor", 4))
        for name, default in pairs:
            softmax, table = (
                getattr(args, f"adaptive_{of}_{name}", default) for of in ("softmax", "input")
            )
            if softmax != table or not getattr(args, "adaptive_input", False):
                raise ValueError(
                    f"--tie-adaptive-weights wants --adaptive-input and one {name} for both: "
                    f"--adaptive-softmax-{name} is {softmax}, --adaptive-input-{name} {table}"
                )
    if getattr(args, "adaptive_input", False) and not getattr(args, "adaptive_input_cutoff", None):
        raise ValueError("--adaptive-input wants --adaptive-input-cutoff: give one, as 20000,60000")
    check_tied(args, "decoder_input_dim")
    block, positions = (
        getattr(args, name, None) for name in ("tokens_per_sample", "max_target_positions")
    )
    check_block("--tokens-per-sample", block, "--max-target-positions", positions)
    check_options(args, PLACES, NAME)  # and with it that there are heads
    width = getattr(args, "decoder_embed_dim", 512)
    heads = getattr(args, "decoder_attention_heads", 8)
    head_dim = getattr(args, "attention_head_dim", None) or width // heads
    if getattr(args, "scale_heads", False) and heads * head_dim != width:
        raise ValueError(
            f"--scale-heads wants heads that are as wide together as the model: {heads} of "
            f"{head_dim} are not {width}"
        )


@register_model(NAME)  # without the dataclass: see transformer.py
class TransformerLMMHEModel(AnyKind, TransformerLanguageModel):
    """A Transformer decoder without cross-attention, with any of ``KINDS`` as its attention."""

    CONFIG = TransformerLMMHEConfig
    check = staticmethod(check_lm)

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """The options, without defaults, so that an architecture's values apply."""
        gen_parser_from_dataclass(parser, TransformerLMMHEConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> TransformerLMMHEModel:
        """Build from flat options: fairseq-train's, a checkpoint's or a hydra configuration's."""
        keep_freed_memory()
        args = plain_options(cfg)
        with one_clear_line(ValueError, AssertionError):  # cut-offs beyond the words
            draw_as_before(args, PLACES)
            if args.decoder_layers_to_keep:
                args.decoder_layers = len(args.decoder_layers_to_keep.split(","))
            args.max_target_positions = _positions(args, task)
            embeddings = cls._embeddings(args, task)
            config = TransformerConfig.from_namespace(args)
            decoder = Decoder(config, task.target_dictionary, embeddings, no_encoder_attn=True)
        model = cls(decoder)
        quicken_dropout(model)
        model.int8_generation = bool(args.int8_generation)
        return model

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

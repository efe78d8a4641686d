"""fairseq's encoder-decoder Transformer with its attention sublayers built by the registry."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_base import TransformerModelBase
from torch import nn

from fairseq_mhe.common.cpu import keep_freed_memory
from fairseq_mhe.common.errors import one_clear_line
from fairseq_mhe.models.dropout import quicken_dropout
from fairseq_mhe.models.options import (
    MODEL_NAME,
    TransformerMHEConfig,
    check_options,
    draw_as_before,
    plain_options,
)
from fairseq_mhe.models.stacks import AnyKind, Decoder, Encoder


# Without its dataclass: fairseq would fill a hydra configuration with the defaults of the dataclass
# before the architecture could set its sizes.
@register_model(MODEL_NAME)
class TransformerMHEModel(AnyKind, TransformerModelBase):
    """fairseq's encoder-decoder Transformer with any of ``KINDS`` as its attention."""

    CONFIG = TransformerMHEConfig
    check = staticmethod(check_options)

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """The options, without defaults, so that an architecture's values apply."""
        from fairseq.dataclass.utils import gen_parser_from_dataclass

        gen_parser_from_dataclass(parser, TransformerMHEConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> TransformerMHEModel:
        """Build from flat options: fairseq-train's, a checkpoint's or a hydra configuration's."""
        keep_freed_memory()
        options = plain_options(cfg)
        with one_clear_line(ValueError):
            draw_as_before(options)
            model = super().build_model(TransformerConfig.from_namespace(options), task)
        model.args = options  # as fairseq's own model has them
        quicken_dropout(model)
        aligned = getattr(getattr(task, "cfg", None), "load_alignments", False)
        model.decoder.need_attn_in_training = bool(aligned)
        model.int8_generation = bool(options.int8_generation)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> Encoder:
        """Called by fairseq's build_model."""
        return Encoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> Decoder:
        """Called by fairseq's build_model."""
        return Decoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

"""fairseq's encoder-decoder Transformer with its attention sublayers built by the registry."""

from __future__ import annotations

import argparse
from typing import Any, Self

from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_base import TransformerModelBase
from torch import nn

from fairseq_mhe.models.options import MODEL_NAME, PLACES, TransformerMHEConfig
from fairseq_mhe.models.stacks import AnyKind, Decoder, Encoder


# Without its dataclass: fairseq would fill a hydra configuration with the defaults of the dataclass
# before the architecture could set its sizes.
@register_model(MODEL_NAME)
class TransformerMHEModel(AnyKind, TransformerModelBase):
    """fairseq's encoder-decoder Transformer with any of ``KINDS`` as its attention."""

    PLACES = tuple(PLACES)
    CONFIG = TransformerMHEConfig

    @classmethod
    def assemble(cls, options: argparse.Namespace, task: Any) -> Self:
        """As fairseq's; called by `build_model`."""
        return super(AnyKind, cls).build_model(TransformerConfig.from_namespace(options), task)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> Encoder:
        """Called by fairseq's build_model."""
        return Encoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> Decoder:
        """Called by fairseq's build_model."""
        return Decoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

"""fairseq's RoBERTa and causal language model with their attention built by the registry."""

import argparse
from typing import Any, Self
from unittest.mock import patch

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderModel, register_model, transformer_lm
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta import model as roberta
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.models.options import PLACES, config
from fairseq_mhe.models.transformer import AnyKind, Decoder, Encoder
from fairseq_mhe.models.understanding import HEADS

ROBERTA, CAUSAL = "roberta_mhe", "transformer_lm_mhe"
_OF_PLACES = tuple(PLACES.values())  # no options where attention has one place


class _RobertaEncoder(RobertaEncoder):
    """fairseq's embeddings and language model head around our encoder."""

    def build_encoder(
        self, args: Any, dictionary: Dictionary, table: nn.Embedding
    ) -> Encoder:
        return Encoder(TransformerConfig.from_namespace(args), dictionary, table)


@register_model(ROBERTA)
class RobertaMHEModel(AnyKind, RobertaModel):
    """RoBERTa (Liu et al. 2019, arXiv 1907.11692) with any of ``KINDS`` as its attention.

    It starts as BERT does: linear layers and tables N(0, 0.02), biases 0. But what is no projection
    (head embeddings, mixing vectors) or starts at zero (a content term) starts as in translation.
    """

    PLACES = ("encoder",)
    _WITHOUT = *_OF_PLACES, "shared_projection_init", "cuda_graphs"
    CONFIG = config("RobertaMHEConfig", without=_WITHOUT)

    def __init__(self, args: argparse.Namespace, encoder: RobertaEncoder) -> None:
        # Not RobertaModel's constructor, which would redraw a kind's own parameters too.
        FairseqEncoderModel.__init__(self, encoder)
        self.args = args
        _start_as_bert(self)
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """fairseq's of RoBERTa and ours."""
        RobertaModel.add_args(parser)
        super().add_args(parser)

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        """As fairseq's, with our encoder."""
        with patch.object(roberta, "RobertaEncoder", _RobertaEncoder):
            return super().assemble(options, task)

    def register_classification_head(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Called by fairseq's tasks: its head, or of ``HEADS`` the one of this name."""
        super().register_classification_head(name, *args, **kwargs)
        if name in HEADS:
            stock: Any = self.classification_heads[name]
            self.classification_heads[name] = HEADS[name](
                stock.dense.in_features,
                stock.dense.out_features,
                stock.out_proj.out_features,
                self.args.pooler_activation_fn,
                self.args.pooler_dropout,
            )

    def forward(
        self, src_tokens: Tensor, *args: Any, spans: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's; ``spans`` (B, 4) are for `WordsHead`."""
        if spans is None:
            return super().forward(src_tokens, *args, **kwargs)
        head = self.classification_heads[kwargs.pop("classification_head_name")]
        features, extra = super().forward(src_tokens, *args, **kwargs)
        return head(features, spans=spans), extra


def _start_as_bert(model: nn.Module) -> None:
    """Draw weights as fairseq's ``init_bert_params``, but for what is a kind's own."""
    if next(model.parameters()).is_meta:
        return
    own: set[nn.Module] = set()
    for attention in model.modules():
        if isinstance(attention, Attention):
            linears = [m for m in attention.modules() if isinstance(m, nn.Linear)]
            own.update(m for m in linears if not m.weight.any())
    for module in model.modules():
        if module not in own:
            init_bert_params(module)


@register_model(CAUSAL)  # without the dataclass: see transformer.py
class TransformerLMMHEModel(AnyKind, transformer_lm.TransformerLanguageModel):
    """A Transformer decoder without cross-attention, with any of ``KINDS`` as its attention."""

    PLACES = ("decoder",)
    _STOCK = transformer_lm.TransformerLanguageModelConfig
    CONFIG = config("TransformerLMMHEConfig", without=_OF_PLACES, base=_STOCK)

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        """As fairseq's, with our decoder."""
        options.max_target_positions = _positions(options, task)
        with patch.object(transformer_lm, "TransformerDecoder", _decoder):
            return super().assemble(options, task)


def _decoder(args: argparse.Namespace, *given: Any, **named: Any) -> Decoder:
    return Decoder(TransformerConfig.from_namespace(args), *given, **named)


def _positions(args: argparse.Namespace, task: Any) -> int:
    """As many as a block of the task has tokens, unless given."""
    for options in (args, getattr(task, "args", None)):
        for name in ("max_target_positions", "tokens_per_sample"):
            value = getattr(options, name, None)
            # Not a reference such as ${task.tokens_per_sample}.
            if isinstance(value, int):
                return value
    return transformer_lm.DEFAULT_MAX_TARGET_POSITIONS

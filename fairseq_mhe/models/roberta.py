"""fairseq's RoBERTa with its attention built by the registry."""

from __future__ import annotations

import argparse
from typing import Any, Self

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderModel, register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.models.heads import HEADS
from fairseq_mhe.models.options import OnePlaceConfig
from fairseq_mhe.models.stacks import AnyKind, Encoder

NAME = "roberta_mhe"
PLACES = ("encoder",)


class _Encoder(RobertaEncoder):
    """fairseq's embeddings and language model head around our encoder."""

    def build_encoder(
        self, args: argparse.Namespace, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> Encoder:
        """Called by fairseq's constructor."""
        return Encoder(TransformerConfig.from_namespace(args), dictionary, embed_tokens)


@register_model(NAME)
class RobertaMHEModel(AnyKind, RobertaModel):
    """RoBERTa (Liu et al. 2019, arXiv 1907.11692) with any of ``KINDS`` as its attention.

    It starts as BERT does: weights of every linear layer and table N(0, 0.02), biases 0, whatever
    the kind. Parameters of a kind that are no projection (head embeddings, mixing vectors) and
    projections that it starts at zero (a content term) start as the kind says, as in translation.
    """

    PLACES = PLACES
    CONFIG = OnePlaceConfig

    def __init__(self, args: argparse.Namespace, encoder: RobertaEncoder) -> None:
        # Not RobertaModel's constructor, which would redraw a kind's own parameters too.
        FairseqEncoderModel.__init__(self, encoder)
        self.args = args
        _start_as_bert(self)
        self.classification_heads = nn.ModuleDict()

    def register_classification_head(
        self,
        name: str,
        num_classes: int | None = None,
        inner_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Called by fairseq's tasks: its head, or of ``HEADS`` the one of this name."""
        super().register_classification_head(name, num_classes, inner_dim, **kwargs)
        if name in HEADS:
            args = self.args
            self.classification_heads[name] = HEADS[name](
                args.encoder_embed_dim,
                inner_dim or args.encoder_embed_dim,
                num_classes,
                args.pooler_activation_fn,
                args.pooler_dropout,
            )

    def forward(
        self, src_tokens: Tensor, *args: Any, spans: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's; ``spans`` (B, 4) are for a head that wants them, `heads.WordsHead`."""
        if spans is None:
            found: tuple[Tensor, dict[str, Any]] = super().forward(src_tokens, *args, **kwargs)
            return found
        head = self.classification_heads[kwargs.pop("classification_head_name")]
        features, extra = super().forward(src_tokens, *args, **kwargs)
        return head(features, spans=spans), extra

    @classmethod
    def check(cls, args: Any) -> None:
        """Refuse an option that has no effect, too."""
        if getattr(args, "shared_projection_init", None) is not None:
            raise ValueError(
                f"--shared-projection-init has no effect on {NAME}, whose projections start as "
                "BERT's, N(0, 0.02): leave it out"
            )
        super().check(args)

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """fairseq's options of RoBERTa and ours."""
        RobertaModel.add_args(parser)
        super().add_args(parser)

    @classmethod
    def assemble(cls, options: argparse.Namespace, task: Any) -> Self:
        """Called by `build_model`; as many positions as a block has tokens, unless given."""
        if not hasattr(options, "max_positions"):
            if not hasattr(options, "tokens_per_sample"):
                options.tokens_per_sample = task.max_positions()
            options.max_positions = options.tokens_per_sample
        return cls(options, _Encoder(options, task.source_dictionary))


def _start_as_bert(model: nn.Module) -> None:
    """Draw weights as fairseq's ``init_bert_params``, but for what is a kind's own."""
    if next(model.parameters()).is_meta:
        return
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    linears = [
        m for sublayer in attentions for m in sublayer.modules() if isinstance(m, nn.Linear)
    ]
    own = {linear for linear in linears if not linear.weight.any()}
    for module in model.modules():
        if module not in own:
            init_bert_params(module)

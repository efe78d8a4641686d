"""fairseq's RoBERTa and causal language model with our attention."""

import argparse
from ast import literal_eval
from typing import Any, Self

from fairseq import options as fairseq_options
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderModel, register_model, transformer_lm
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta import model as roberta
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import AdaptiveInput, CharacterTokenEmbedder
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_mhe.models.architectures import CAUSAL, ROBERTA
from fairseq_mhe.models.configs import RobertaMHEConfig, TransformerLMMHEConfig
from fairseq_mhe.models.model import MHEModel
from fairseq_mhe.models.transformer import Decoder, Encoder
from fairseq_mhe.models.understanding import HEADS


class _RobertaEncoder(RobertaEncoder):
    """fairseq's embeddings and language model head around our encoder."""

    def build_encoder(
        self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> Encoder:
        return Encoder(TransformerConfig.from_namespace(args), dictionary, embed_tokens)


@register_model(ROBERTA)
class RobertaMHEModel(MHEModel, RobertaModel):
    """RoBERTa (Liu et al. 2019, arXiv 1907.11692) with any of ``KINDS`` as its attention.

    Weights start as BERT's: linear layers and embeddings N(0, 0.02), biases 0. Head embeddings,
    mixing vectors, and projections that are zero at first (content terms) start as in translation.
    """

    PLACES = ("encoder",)
    CONFIG = RobertaMHEConfig

    def __init__(self, args: argparse.Namespace, encoder: RobertaEncoder) -> None:
        # RobertaModel's constructor is left out: it would redraw projections that start at zero.
        FairseqEncoderModel.__init__(self, encoder)
        self.args = args
        _init_as_bert(self)
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of fairseq's RoBERTa and ours."""
        RobertaModel.add_args(parser)
        super().add_args(parser)

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        """Build as ``RobertaModel.build_model`` does, but with our encoder."""
        roberta.base_architecture(options)
        if not hasattr(options, "max_positions"):
            if not hasattr(options, "tokens_per_sample"):
                options.tokens_per_sample = task.max_positions()
            options.max_positions = options.tokens_per_sample
        return cls(options, _RobertaEncoder(options, task.source_dictionary))

    def register_classification_head(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Add the head of this name in ``HEADS``, or else fairseq's; fairseq's tasks call this."""
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
        """Run fairseq's forward pass; pass ``spans`` (B, 4) on to the `WordsHead`."""
        if spans is None:
            return super().forward(src_tokens, *args, **kwargs)
        head = self.classification_heads[kwargs.pop("classification_head_name")]
        features, extra = super().forward(src_tokens, *args, **kwargs)
        return head(features, spans=spans), extra


def _init_as_bert(model: nn.Module) -> None:
    """Draw weights by fairseq's ``init_bert_params``; keep projections of attention that are 0."""
    if next(model.parameters()).is_meta:
        return
    for module in model.modules():
        if not isinstance(module, nn.Linear) or module.weight.any():
            init_bert_params(module)


@register_model(CAUSAL)  # without CONFIG, as in transformer.py
class TransformerLMMHEModel(MHEModel, transformer_lm.TransformerLanguageModel):
    """A Transformer decoder without cross-attention, with any of ``KINDS`` as its attention."""

    PLACES = ("decoder",)
    CONFIG = TransformerLMMHEConfig

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        """Build as ``TransformerLanguageModel.build_model`` does, but with our decoder."""
        options.max_target_positions = _positions(options, task)
        _check_embedding(options)
        embed_tokens = cls.build_input_embedding(options, task.source_dictionary)
        decoder = Decoder(
            options, task.target_dictionary, embed_tokens, no_encoder_attn=True
        )
        return cls(decoder)

    @classmethod
    def build_input_embedding(cls, options: Any, dictionary: Dictionary) -> nn.Module:
        """Build the table of embeddings, or fairseq's character or adaptive embedding."""
        if options.character_embeddings:
            return CharacterTokenEmbedder(
                dictionary,
                literal_eval(options.character_filters),
                options.character_embedding_dim,
                options.decoder_embed_dim,
                options.char_embedder_highway_layers,
            )
        if options.adaptive_input:
            return AdaptiveInput(
                len(dictionary),
                dictionary.pad(),
                options.decoder_input_dim,
                options.adaptive_input_factor,
                options.decoder_embed_dim,
                fairseq_options.eval_str_list(options.adaptive_input_cutoff, type=int),
            )
        return cls.build_embedding(options, dictionary, options.decoder_input_dim)


def _check_embedding(options: argparse.Namespace) -> None:
    """Raise ValueError if options of the input embedding and of the output do not fit together."""
    if options.adaptive_input and not options.adaptive_input_cutoff:
        raise ValueError("--adaptive-input needs --adaptive-input-cutoff: add it")
    has_table = not (options.adaptive_input or options.character_embeddings)
    needs_table = options.adaptive_softmax_cutoff is None
    if options.share_decoder_input_output_embed and needs_table and not has_table:
        other = "adaptive-input" if options.adaptive_input else "character-embeddings"
        both = f"--share-decoder-input-output-embed and --{other}"
        raise ValueError(f"{both} do not go together: leave one out")
    if options.tie_adaptive_weights:
        _check_tied_adaptive_weights(options)


def _check_tied_adaptive_weights(options: argparse.Namespace) -> None:
    if not options.adaptive_input:
        raise ValueError("--tie-adaptive-weights needs --adaptive-input: add it")
    pairs = [
        ("adaptive_input_factor", "adaptive_softmax_factor"),
        ("adaptive_input_cutoff", "adaptive_softmax_cutoff"),
        ("decoder_input_dim", "decoder_output_dim"),
    ]
    for pair in pairs:
        one, other = (getattr(options, name) for name in pair)
        if one != other:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in pair)
            raise ValueError(
                f"--tie-adaptive-weights needs equal {flags}, not {one} and {other}"
            )


def _positions(args: argparse.Namespace, task: Any) -> int:
    """Return the number of positions from the model's options, or else from the task's."""
    for options in (args, getattr(task, "args", None)):
        for name in ("max_target_positions", "tokens_per_sample"):
            value = getattr(options, name, None)
            if isinstance(value, int):  # not a reference such as ${task.max_positions}
                return value
    return transformer_lm.DEFAULT_MAX_TARGET_POSITIONS

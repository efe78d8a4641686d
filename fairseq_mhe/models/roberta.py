"""fairseq's RoBERTa with its attention and its token embedding built by the registries."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import FairseqEncoderModel, register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta.model import base_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.common.allocator import keep_freed_memory
from fairseq_mhe.common.errors import one_clear_line
from fairseq_mhe.common.onednn import keep_compiled_products
from fairseq_mhe.embeddings import HASHED, TABLE, HashEmb, build_hashed, folder_of
from fairseq_mhe.models import shuffle_random
from fairseq_mhe.models.dropout import quicken_dropout
from fairseq_mhe.models.heads import HEADS
from fairseq_mhe.models.options import OPTIONS, OnePlaceConfig, check_options, embedding_of
from fairseq_mhe.models.stacks import AnyKind, Encoder

NAME = "roberta_mhe"
PLACES = ("encoder",)
#: fairseq's pruning of trained heads, which reads and cuts the projections of its own attention:
#: option, its default.
_PRUNING = {"mha_reg_scale_factor": 0.0, "mha_heads_to_keep": -1}
_TABLE = "encoder.sentence_encoder.embed_tokens.weight"

#: What a model is pre-trained to say, and what its output is.
OBJECTIVES = ("masked_lm", shuffle_random.NAME)


class _Encoder(RobertaEncoder):
    """fairseq's embeddings and language model head, or ours, around our encoder."""

    def __init__(self, args: argparse.Namespace, task: Any) -> None:
        self._folder = folder_of(task)  # which fairseq's constructor has no place for
        super().__init__(args, task.source_dictionary)

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Module:
        """Called by fairseq's constructor."""
        args = self.args
        if args.embedding == TABLE:
            return super().build_embedding(vocab_size, embedding_dim, padding_idx)
        return build_hashed(
            args.embedding,
            args.hash,
            self.dictionary,
            embedding_dim,
            dropout=args.dropout,
            folder=self._folder,
        )

    def build_lm_head(
        self, embed_dim: int, output_dim: int, activation_fn: str, weight: Tensor | None
    ) -> nn.Module:
        """Called by fairseq's constructor."""
        if self.args.objective == shuffle_random.NAME:
            return shuffle_random.ThreeClasses(embed_dim, self.args.dropout)
        rows = self.sentence_encoder.embed_tokens.weight
        return super().build_lm_head(embed_dim, len(rows), activation_fn, weight)

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

    def __init__(self, args: argparse.Namespace, encoder: RobertaEncoder) -> None:
        # Not RobertaModel's constructor, which would redraw a kind's own parameters too.
        FairseqEncoderModel.__init__(self, encoder)
        self.args = args
        self.int8_generation = bool(args.int8_generation)
        _start_as_bert(self)
        self.classification_heads = nn.ModuleDict()

    def register_classification_head(
        self, name: str, num_classes: int | None = None, inner_dim: int | None = None, **kwargs: Any
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

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """fairseq's options of RoBERTa and ours."""
        RobertaModel.add_args(parser)
        gen_parser_from_dataclass(parser, OnePlaceConfig(), delete_default=True)
        parser.add_argument(
            "--objective",
            choices=OBJECTIVES,
            help="what the model says: words of a vocabulary or, as --task "
            f"{shuffle_random.NAME} has it, three classes (default: words, where the embedding "
            "has rows to tell them by)",
        )
        parser.add_argument(
            "--scale-embedding",
            action="store_true",
            help="multiply token embeddings by the root of their width, as translation does",
        )
        parser.add_argument(
            "--further-words",
            action="store_true",
            help="the dictionary goes on after that of the checkpoint, with words that its table "
            "has not: they start as its unknown word",
        )

    @classmethod
    def build_model(cls, args: Any, task: Any) -> RobertaMHEModel:
        """Build from flat options: fairseq-train's, a checkpoint's or a hydra configuration's."""
        keep_freed_memory()
        keep_compiled_products()
        given: Any = vars(args)
        if isinstance(args, DictConfig):
            given = OmegaConf.to_container(args, resolve=True, enum_to_str=True)
        options = argparse.Namespace(**given)
        with one_clear_line(ValueError):
            check_roberta(options)
            fill(options)
            if not hasattr(options, "max_positions"):
                if not hasattr(options, "tokens_per_sample"):
                    options.tokens_per_sample = task.max_positions()
                options.max_positions = options.tokens_per_sample
            model = cls(options, _Encoder(options, task))
        quicken_dropout(model)
        return model

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As fairseq's; called before weights are loaded."""
        super().upgrade_state_dict_named(state_dict, name)
        if self.args.further_words:
            _add_words(state_dict, self.encoder.dictionary)

    def get_targets(self, sample: dict[str, Any], net_output: Any) -> Tensor:
        """What is asked for, (B, T) words or (B,) a task's; of words that are rows, their rows."""
        target: Tensor = super().get_targets(sample, net_output)
        embedding = self.encoder.sentence_encoder.embed_tokens
        if isinstance(embedding, HashEmb) and net_output[0].size(-1) == len(embedding.weight):
            return embedding.rows[target]
        return target


def fill(args: argparse.Namespace) -> None:
    """Give ``args`` fairseq's and our defaults of what it does not say."""
    base_architecture(args)
    for name, (_, field) in OPTIONS.items():
        if not hasattr(args, name):
            setattr(args, name, field.default)
    args.embedding = embedding_of(args)  # None in a checkpoint of fairseq's own
    args.further_words = getattr(args, "further_words", False)
    # fairseq's own name of it has no option that a masked model could be given.
    args.scale_embedding = getattr(args, "scale_embedding", False) or not args.no_scale_embedding
    args.no_scale_embedding = not args.scale_embedding
    if getattr(args, "objective", None) is None:
        args.objective = OBJECTIVES[0] if _has_rows(args) else shuffle_random.NAME


def _add_words(state: dict[str, Tensor], dictionary: Dictionary) -> None:
    """Give the table and the output tied to it rows of what the dictionary has more: <unk>'s.

    The last row is that of <mask>, which fairseq's task adds after all words.
    """
    table = state.get(_TABLE)
    more = 0 if table is None else len(dictionary) - len(table)
    if more <= 0:  # it has them all, or is of another model, which is told of by who loads it
        return
    for name in (_TABLE, "encoder.lm_head.weight", "encoder.lm_head.bias"):
        rows = state.get(name)  # (V, C) or (V,)
        if rows is not None:
            new = rows[[dictionary.unk()] * more]
            state[name] = torch.cat([rows[:-1], new, rows[-1:]])


def _has_rows(args: argparse.Namespace) -> bool:
    """Whether the token embedding has rows that an output can be tied to."""
    kind = embedding_of(args)
    return kind not in HASHED or HASHED[kind].has_rows


def check_roberta(args: Any) -> None:
    """Refuse what cannot work, before any data is read.

    Raises:
        ValueError: as `check_options`; heads are to be pruned; a block is longer than the model's
            positions; an option would have no effect; or words are to be predicted that have no
            rows.
    """
    for name, default in _PRUNING.items():
        if getattr(args, name, default) != default:
            raise ValueError(
                f"{NAME} does not support pruning of heads (--{name.replace('_', '-')}): leave it "
                "out"
            )
    if getattr(args, "shared_projection_init", None) is not None:
        raise ValueError(
            f"--shared-projection-init has no effect on {NAME}, whose projections start as "
            "BERT's, N(0, 0.02): leave it out"
        )
    if getattr(args, "further_words", False) and embedding_of(args) != TABLE:
        raise ValueError(
            f"--further-words has no effect on --embedding {args.embedding}, which knows every "
            "word: leave it out"
        )
    block, positions = (getattr(args, n, None) for n in ("tokens_per_sample", "max_positions"))
    check_block("--tokens-per-sample", block, "--max-positions", positions)
    check_options(args, PLACES, NAME)
    masked = OBJECTIVES[0] in (getattr(args, "task", None), getattr(args, "objective", None))
    if masked and not _has_rows(args):
        raise ValueError(
            f"--embedding {args.embedding} has no output vocabulary, which masked_lm predicts: "
            f"give --task {shuffle_random.NAME} --criterion {shuffle_random.NAME}, or --embedding "
            "table or hash_emb"
        )


def check_block(option: str, block: Any, limit: str, positions: Any) -> None:
    """Refuse blocks of text that are longer than the model has positions.

    Raises:
        ValueError: they are.
    """
    if isinstance(block, int) and isinstance(positions, int) and block > positions:
        raise ValueError(
            f"{option} {block} is more than the {positions} positions of the model: lower it, or "
            f"raise {limit}"
        )


def _start_as_bert(model: nn.Module) -> None:
    """Draw weights as fairseq's ``init_bert_params``, but for what is a kind's own."""
    if next(model.parameters()).is_meta:
        return
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    linears = [m for sublayer in attentions for m in sublayer.modules() if isinstance(m, nn.Linear)]
    own = {linear for linear in linears if not linear.weight.any()}
    for module in model.modules():
        if module not in own:
            init_bert_params(module)

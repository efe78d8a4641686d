"""fairseq's Transformer with its attention sublayers built by the registry, and the options that choose them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import Field, field, fields, make_dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
)
from fairseq.models.transformer.transformer_base import TransformerModelBase
from fairseq.models.transformer.transformer_config import (
    DecoderConfig,
    EncDecBaseConfig,
    QuantNoiseConfig,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from omegaconf import II, DictConfig, OmegaConf
from torch import Tensor, nn

from fairseq_mhe.attention import VARIANTS, Attention, build_attention, variant
from fairseq_mhe.attention.cache import sentence_order
from fairseq_mhe.attention.kernel import causal_mask
from fairseq_mhe.common.allocator import keep_freed_memory
from fairseq_mhe.common.errors import ErrorExit, one_clear_line
from fairseq_mhe.models.packed import pack_linears

MODEL_NAME = "transformer_mhe"
DEFAULT_ATTENTION = "mhe_mul"
#: Where attention sits, and the option that overrides its kind there.
PLACES = {
    "encoder": "encoder_attention",
    "decoder": "decoder_attention",
    "cross": "cross_attention",
}
#: Options that are handed to the variant under the name after the arrow.
VARIANT_OPTIONS = {
    "attention_head_dim": "head_dim",
    "attention_kv_heads": "kv_heads",
    "collaborative_dim": "collaborative_dim",
    "head_embedding_std": "head_embedding_std",
    "head_embedding_offset": "head_embedding_offset",
    "shared_projection_init": "shared_projection_init",
}
#: alignment_layer that matches no layer: no attention weights are computed.
NO_LAYER = -1


def _option(type_: Any, default: Any, help_: str) -> tuple[Any, Any]:
    return type_, field(default=default, metadata={"help": help_})


_KINDS = ", ".join(VARIANTS)
OPTIONS: dict[str, tuple[Any, Any]] = {
    "attention": _option(str, DEFAULT_ATTENTION, f"kind of attention: {_KINDS}"),
    "encoder_attention": _option(
        Optional[str], None, "kind of the encoder's self-attention (default: --attention)"
    ),
    "decoder_attention": _option(
        Optional[str], None, "kind of the decoder's self-attention (default: --attention)"
    ),
    "cross_attention": _option(
        Optional[str], None, "kind of the decoder's cross-attention (default: --attention)"
    ),
    "attention_bias": _option(
        bool, False, "give attention projections biases, as fairseq's own transformer has"
    ),
    "attention_head_dim": _option(
        Optional[int], None, "width of a head (default: embedding dimension / heads)"
    ),
    "attention_kv_heads": _option(
        Optional[int], None, "gqa: key/value heads, a divisor of the heads (default: 2)"
    ),
    "collaborative_dim": _option(
        Optional[int],
        None,
        "collaborative: width of the shared queries and keys (default: embedding dimension / 4)",
    ),
    "head_embedding_std": _option(
        Optional[float],
        None,
        "mhe_mul, mhe_add: spread of the head embeddings' initial values N(0, std) (default: 0.02)",
    ),
    "head_embedding_offset": _option(
        Optional[float],
        None,
        "mhe_mul: what is added to a head embedding before multiplying (default: 1)",
    ),
    "shared_projection_init": _option(
        Optional[str],
        None,
        "mhe_mul, mhe_add: scale of the shared projections' initial weights: packed (fairseq's gain; default), xavier "
        "(without it) or head (as large as those of one head in mha)",
    ),
    "int8_generation": _option(
        bool,
        False,
        "generate on a CPU with large weights rounded to 8-bit integers: faster, and nearly the same",
    ),
}


def _flat_fields() -> Iterator[tuple[str, Any, Any]]:
    """fairseq's nested TransformerConfig with the nesting in the names (encoder_embed_dim), as its command line has."""
    nested = {
        "encoder": EncDecBaseConfig,
        "decoder": DecoderConfig,
        "quant_noise": QuantNoiseConfig,
    }
    for outer in fields(TransformerConfig):
        if outer.name not in nested:
            yield outer.name, outer.type, _copied(outer)
            continue
        for inner in fields(nested[outer.name]):
            name = f"{outer.name}_{inner.name}"
            if inner.name == "layers_to_keep":
                # fairseq declares a list but splits a string.
                yield (
                    name,
                    *_option(Optional[str], None, "comma-separated layers to keep when pruning"),
                )
            elif inner.name in ("input_dim", "output_dim"):
                yield (
                    name,
                    int,
                    field(default=II("model.decoder_embed_dim"), metadata=dict(inner.metadata)),
                )
            else:
                yield name, inner.type, _copied(inner)


def _copied(original: Field) -> Any:
    return field(default=original.default, metadata=dict(original.metadata))


#: Every option of fairseq's Transformer and our own, flat: what --help shows and a checkpoint
#: stores, as plain values.
TransformerMHEConfig = make_dataclass(
    "TransformerMHEConfig",
    [*_flat_fields(), *((name, *option) for name, option in OPTIONS.items())],
    bases=(FairseqDataclass,),
    namespace={"__module__": __name__},
)


def kinds(args: Any) -> dict[str, str]:
    """The kind of attention at each place of ``PLACES``, from flat options."""
    default = getattr(args, "attention", None) or DEFAULT_ATTENTION
    return {place: getattr(args, option, None) or default for place, option in PLACES.items()}


def check_options(args: Any) -> None:
    """Refuse what cannot work, before any data is read.

    Raises:
        ValueError: an unknown kind, an option that no chosen kind uses, sizes that do not fit, or a
        feature of
            fairseq's Transformer that this model does not support.
    """
    chosen = kinds(args)
    for kind in chosen.values():
        variant(kind)
    for option, name in VARIANT_OPTIONS.items():
        if getattr(args, option, None) is not None and not any(
            name in _known(kind) for kind in chosen.values()
        ):
            users = ", ".join(kind for kind in VARIANTS if name in _known(kind))
            raise ValueError(
                f"--{option.replace('_', '-')} has no effect on --attention {'/'.join(dict.fromkeys(chosen.values()))}:"
                f" leave it out, or choose one of: {users}"
            )
    unsupported = {
        "quant_noise_pq": "quantisation noise (--quant-noise-pq)",
        "cross_self_attention": "--cross-self-attention",
        "encoder_xformers_att_config": "xFormers (--encoder-xformers-att-config)",
        "decoder_xformers_att_config": "xFormers (--decoder-xformers-att-config)",
    }
    for option, feature in unsupported.items():
        if getattr(args, option, None):
            raise ValueError(f"{MODEL_NAME} does not support {feature}: leave it out")
    for place, kind in chosen.items():
        build_attention(kind, **_arguments(args, place, kind))


def _known(kind: str) -> set[str]:
    return {option.name for option in variant(kind).OPTIONS}


def _arguments(args: Any, place: str, kind: str) -> dict[str, Any]:
    """Keyword arguments of :func:`build_attention` for a place, from flat options (fairseq's defaults where absent)."""
    side = "encoder" if place == "encoder" else "decoder"
    embed_dim = getattr(args, f"{side}_embed_dim", 512)
    memory_dim = getattr(args, "encoder_embed_dim", 512) if place == "cross" else embed_dim
    options = {
        name: getattr(args, option)
        for option, name in VARIANT_OPTIONS.items()
        if getattr(args, option, None) is not None and name in _known(kind)
    }
    return {
        "embed_dim": embed_dim,
        "num_heads": getattr(args, f"{side}_attention_heads", 8),
        "kdim": memory_dim,
        "vdim": memory_dim,
        "dropout": getattr(args, "attention_dropout", 0.0),
        "bias": getattr(args, "attention_bias", False),
        "self_attention": place != "cross",
        "encoder_decoder_attention": place == "cross",
        **options,
    }


def build_place(cfg: TransformerConfig, place: str) -> Attention:
    """The attention sublayer of a place (a key of ``PLACES``) for fairseq's nested configuration."""
    kind = kinds(cfg)[place]
    return build_attention(kind, **_arguments(cfg, place, kind))


class EncoderLayer(TransformerEncoderLayerBase):
    """fairseq's layer with our self-attention."""

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> Attention:
        """Called by fairseq's constructor."""
        return build_place(cfg, "encoder")


class DecoderLayer(TransformerDecoderLayerBase):
    """fairseq's layer with our self- and cross-attention."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # fairseq computes every layer's attention weights in validation, though the decoder uses
        # one layer's only and asks for it by another argument.
        self.need_attn = False

    def build_self_attention(
        self,
        embed_dim: int,
        cfg: TransformerConfig,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
    ) -> Attention:
        """Called by fairseq's constructor."""
        return build_place(cfg, "decoder")

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> Attention:
        """Called by fairseq's constructor."""
        return build_place(cfg, "cross")

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """fairseq would set ``need_attn`` here; the decoder decides (see :class:`Decoder`)."""


def _wrapped(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Activation checkpointing and sharding, as fairseq's build_encoder_layer and build_decoder_layer add them."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(
        layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    )


class Encoder(TransformerEncoderBase):
    """fairseq's encoder with our layers; its output is kept once a sentence, however many hypotheses share it."""

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        """Called by fairseq's constructor."""
        return _wrapped(EncoderLayer(cfg, return_fc=self.return_fc), cfg)

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Follow beam search without copying the output for each hypothesis.

        fairseq first calls this with every sentence repeated ``beam`` times, then with orders of
        hypotheses.
        ``encoder_out["beam"]`` remembers the number, and rows are selected only where sentences
        come or go.

        Args:
            encoder_out: what :meth:`forward` returned, of B sentences.
            new_order: (N,) row indices.
        """
        sentences = encoder_out["encoder_out"][0].size(1)
        if "beam" in encoder_out:
            beam = encoder_out["beam"]
        elif len(new_order) % sentences == 0:
            beam = len(new_order) // sentences
            new_order = (
                new_order * beam
            )  # a sentence's first hypothesis, as if each had had ``beam`` of them before
        else:
            beam = 1
        rows, beam = sentence_order(new_order, sentences, beam)
        reordered = encoder_out if rows is None else super().reorder_encoder_out(encoder_out, rows)
        return {**reordered, "beam": beam}


class Decoder(TransformerDecoderBase):
    """fairseq's decoder with our layers, which computes attention weights only where someone will see them."""

    def __init__(self, cfg: TransformerConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        #: Weights are returned outside training (as fairseq does), unless fairseq-generate says
        #: they are not printed.
        self.need_attn = True
        #: Weights are returned in training too, for criterions that compare them with given
        #: alignments.
        self.need_attn_in_training = False

    def build_decoder_layer(
        self, cfg: TransformerConfig, no_encoder_attn: bool = False
    ) -> nn.Module:
        """Called by fairseq's constructor."""
        return _wrapped(DecoderLayer(cfg, no_encoder_attn), cfg)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        """The causal mask (T, T) for x (T, B, C), boolean and marked as causal, kept from batch to batch."""
        length = tensor.size(0)
        self._future_mask: Tensor
        if self._future_mask.shape != (length, length) or self._future_mask.device != tensor.device:
            self._future_mask = causal_mask(length, tensor.device)
        return self._future_mask

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any] | None = None,
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's, but no weights are computed where nobody asked: (B, T, C) and {"attn", "inner_states"}."""
        wanted = self.need_attn_in_training if self.training else self.need_attn
        if alignment_layer is None and not wanted:
            alignment_layer = NO_LAYER
        return super().extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        """Called before generation; ``need_attn``: alignments will be printed."""
        self.need_attn = need_attn


@register_model(MODEL_NAME, dataclass=TransformerMHEConfig)
class TransformerMHEModel(TransformerModelBase):
    """fairseq's encoder-decoder Transformer whose attention sublayers are any of ``fairseq_mhe.attention.VARIANTS``."""

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """The options, without defaults, so that an architecture's values apply."""
        from fairseq.dataclass.utils import gen_parser_from_dataclass

        gen_parser_from_dataclass(parser, TransformerMHEConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> TransformerMHEModel:
        """Build from flat options, be they fairseq-train's, a checkpoint's or a hydra configuration's."""
        keep_freed_memory()
        with one_clear_line(ValueError):
            flat = _flat(cfg)
            check_options(flat)
            model = super().build_model(TransformerConfig.from_namespace(flat), task)
        model.decoder.need_attn_in_training = bool(
            getattr(getattr(task, "cfg", None), "load_alignments", False)
        )
        return model

    @classmethod
    def build_encoder(
        cls, cfg: TransformerConfig, src_dict: Any, embed_tokens: nn.Module
    ) -> Encoder:
        """Called by fairseq's build_model."""
        return Encoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(
        cls, cfg: TransformerConfig, tgt_dict: Any, embed_tokens: nn.Module
    ) -> Decoder:
        """Called by fairseq's build_model."""
        return Decoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Called before generation, on every layer too."""
        super().make_generation_fast_(**kwargs)
        with one_clear_line(ValueError):
            pack_linears(self, int8=getattr(self.cfg, "int8_generation", False))

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, **kwargs: Any
    ) -> Any:
        """As fairseq's, but a checkpoint of another kind or row is refused in one line."""
        try:
            return super().load_state_dict(state_dict, strict, **kwargs)
        except RuntimeError:
            raise ErrorExit(self._mismatch(state_dict)) from None

    def _mismatch(self, state_dict: dict[str, Tensor]) -> str:
        """Name the first parameter in which the model and a checkpoint differ."""
        own = self.state_dict()
        for name in [*own, *state_dict]:
            expected, found = (
                tuple(d[name].shape) if name in d else "absent" for d in (own, state_dict)
            )
            if expected != found:
                break
        return (
            f"the checkpoint is not of this model: {name} is {found} in the checkpoint, {expected} in the model;"
            " use the --arch, --attention and dictionary it was trained with, or another --save-dir"
        )


def _flat(cfg: Any) -> argparse.Namespace:
    """Flat options as a namespace of plain values, with this model's defaults for those not given."""
    given = (
        OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
        if isinstance(cfg, DictConfig)
        else vars(cfg)
    )
    defaults = {f.name: f.default for f in fields(TransformerMHEConfig)}
    flat = argparse.Namespace(**{**defaults, **given})  # type: ignore[dict-item]
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if isinstance(getattr(flat, name), str):  # the unresolved default: as wide as the decoder
            setattr(flat, name, flat.decoder_embed_dim)
    return flat

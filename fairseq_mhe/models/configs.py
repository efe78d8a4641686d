"""The options of our models on fairseq-train's command line: a dataclass for each family."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from omegaconf import DictConfig, OmegaConf

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import option as declared
from fairseq_mhe.models.options import DEFAULT_ATTENTION, PLACES, kind_options

#: Prefixes of fairseq's options for features that our attention lacks.
_UNSUPPORTED = ("quant_noise", "cross_self_attention", "xformers", "layers_to_keep")


def _kind_fields(*without: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and field of the options that kinds declare."""
    for name, (option, users) in kind_options().items():
        if name in without:
            continue
        text = option.help
        if len(users) < len(KINDS):
            text = f"{', '.join(users)}: {text}"
        # None stands for the kind's own default.
        yield name, Optional[option.type], declared(None, text)


def _place_fields() -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of the options that choose a kind for one place."""
    for place, name in PLACES.items():
        text = f"kind of {place} attention (default: --attention)"
        yield name, Optional[str], declared(None, text)


def _flat_fields() -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of fairseq's TransformerConfig under flat names (encoder_embed_dim)."""
    sides = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig}
    for outer in fields(TransformerConfig):
        nested = outer.name in sides
        inner = fields(sides[outer.name]) if nested else (outer,)
        for option in inner:
            if option.name.startswith(_UNSUPPORTED):
                continue
            name = f"{outer.name}_{option.name}" if nested else option.name
            copied = field(default=option.default, metadata=dict(option.metadata))
            yield name, option.type, copied


# Any: mypy cannot follow classes whose fields are known only when kinds are.
_KindConfig: Any = make_dataclass("_KindConfig", _kind_fields())
#: Without the scale of initial weights: RoBERTa draws them as BERT does.
_BertKindConfig: Any = make_dataclass(
    "_BertKindConfig", _kind_fields("shared_projection_init")
)
_PlacesConfig: Any = make_dataclass("_PlacesConfig", _place_fields())
_FlatConfig: Any = make_dataclass("_FlatConfig", _flat_fields())

_KIND_HELP = f"kind of attention: {', '.join(KINDS)} (default: {DEFAULT_ATTENTION})"
_Precision: Any = ChoiceEnum(["float32", "bf16", "int8", "auto"])


@dataclass
class AttentionConfig(FairseqDataclass):
    """Our options in every model."""

    attention: str = declared(DEFAULT_ATTENTION, _KIND_HELP)
    attention_bias: bool = declared(
        False, "add biases to attention projections, as fairseq's own transformer does"
    )
    generation_precision: _Precision = declared(
        "float32",
        "format of large weights on a CPU; auto: bf16 with AVX512-BF16 or AMX (default: float32)",
    )


@dataclass
class GraphsConfig:
    """Our options in models with a decoder."""

    cuda_graphs: bool = declared(
        False,
        "train on a GPU by CUDA graphs, with batches padded to few shapes: "
        "faster for small batches",
    )


@dataclass
class TransformerMHEConfig(
    GraphsConfig, _KindConfig, _PlacesConfig, AttentionConfig, _FlatConfig
):
    """The options of `TransformerMHEModel`."""


@dataclass
class TransformerLMMHEConfig(
    GraphsConfig, _KindConfig, AttentionConfig, TransformerLanguageModelConfig
):
    """The options of `TransformerLMMHEModel`."""


@dataclass
class RobertaMHEConfig(_BertKindConfig, AttentionConfig):
    """The options of `RobertaMHEModel`, beside those that fairseq's RoBERTa adds to a parser."""


#: The names of our own options; `_name` is fairseq's.
OPTIONS = tuple(
    option.name
    for group in (AttentionConfig, _PlacesConfig, _KindConfig, GraphsConfig)
    for option in fields(group)
    if option.name != "_name"
)


def set_defaults(args: Any, config: type[FairseqDataclass]) -> None:
    """Set the options that ``args`` lacks to their defaults, unless these refer to the task's."""
    for item in fields(config):
        name, value = item.name, item.default
        is_reference = str(value).startswith("${")  # such as ${task.tokens_per_sample}
        if not (hasattr(args, name) or name.startswith("_") or is_reference):
            setattr(args, name, value)
    for name in ("decoder_input_dim", "decoder_output_dim"):  # default: decoder_embed_dim
        if "decoder_embed_dim" in args:
            given = str(getattr(args, name, ""))  # fairseq's parser returns text
            size = int(given) if given.isdecimal() else args.decoder_embed_dim
            setattr(args, name, size)


def plain_options(cfg: Any) -> argparse.Namespace:
    """Copy flat options from a namespace or a hydra configuration into a namespace."""
    if isinstance(cfg, DictConfig):
        values: Any = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
        return argparse.Namespace(**values)
    return argparse.Namespace(**vars(cfg))

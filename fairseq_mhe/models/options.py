"""The options of our models (fairseq's, ours and those of kinds), and the attention they choose."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from omegaconf import DictConfig, OmegaConf

from fairseq_mhe.attention import KINDS, Attention, build_attention, kind_class
from fairseq_mhe.attention.options import Option
from fairseq_mhe.common.arguments import option as declared

DEFAULT_ATTENTION = "mhe_mul"
#: Each place of attention in a model, and the option that sets the kind of attention there.
PLACES = {place: f"{place}_attention" for place in ("encoder", "decoder", "cross")}
#: Prefixes of fairseq's options for features that our attention lacks.
_UNSUPPORTED = ("quant_noise", "cross_self_attention", "xformers", "layers_to_keep")
#: Flag -> the option, and the kinds that use it.
KindOptions = dict[str, tuple[Option, list[str]]]


def kind_options() -> KindOptions:
    """Return the options that kinds declare."""
    options: KindOptions = {}
    for kind, class_ in KINDS.items():
        for option in class_.OPTIONS:
            _, users = options.setdefault(option.flag, (option, []))
            users.append(kind)
    return dict(sorted(options.items()))


def size_options() -> KindOptions:
    """Return the `kind_options` that set a size (a whole number) and that not all kinds use."""
    sizes = {}
    for flag, (option, users) in kind_options().items():
        if option.type is int and len(users) < len(KINDS):
            sizes[flag] = option, users
    return sizes


# The options of each family of models, one dataclass a family.


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
class PlacesConfig:
    """Our options in models with several places of attention."""

    encoder_attention: Optional[str] = declared(
        None, "kind of encoder attention (default: --attention)"
    )
    decoder_attention: Optional[str] = declared(
        None, "kind of decoder attention (default: --attention)"
    )
    cross_attention: Optional[str] = declared(
        None, "kind of cross attention (default: --attention)"
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
    GraphsConfig, _KindConfig, PlacesConfig, AttentionConfig, _FlatConfig
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
    for group in (AttentionConfig, PlacesConfig, _KindConfig, GraphsConfig)
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


def kinds(args: Any) -> dict[str, str]:
    """Return the kind of attention at each place of ``PLACES``, from flat options."""
    default = getattr(args, "attention", None) or DEFAULT_ATTENTION
    chosen = {}
    for place, option in PLACES.items():
        chosen[place] = getattr(args, option, None) or default
    return chosen


def check_options(args: Any, places: Sequence[str]) -> None:
    """Raise ValueError for an unknown kind, sizes that do not fit, or an option without effect."""
    with torch.device("meta"):  # builds sublayers without memory and without random draws
        for place in places:
            build_sublayer(args, place)
    chosen = dict.fromkeys(kinds(args)[place] for place in places)
    for name, (_, users) in kind_options().items():
        given = getattr(args, name, None) is not None
        if given and chosen.keys().isdisjoint(users):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{flag} has no effect on --attention {'/'.join(chosen)}: leave it out, or choose "
                f"one of: {', '.join(users)}"
            )


def build_sublayer(args: Any, place: str) -> Attention:
    """Build the attention of a place, from flat options or fairseq's nested configuration."""
    kind = kinds(args)[place]
    side = "encoder" if place == "encoder" else "decoder"
    embed_dim = getattr(args, f"{side}_embed_dim")
    memory_dim = args.encoder_embed_dim if place == "cross" else embed_dim
    options = kind_class(kind).OPTIONS
    values: Any = {option.name: getattr(args, option.flag, None) for option in options}
    return build_attention(
        kind,
        embed_dim,
        getattr(args, f"{side}_attention_heads"),
        kdim=memory_dim,
        vdim=memory_dim,
        dropout=getattr(args, "attention_dropout", 0.0),
        bias=getattr(args, "attention_bias", False),
        **values,
    )

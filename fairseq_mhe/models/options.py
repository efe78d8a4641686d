"""The options of our models: fairseq's, ours, those of kinds; and the attention they choose."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import field, fields, make_dataclass
from typing import Any, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig
from omegaconf import DictConfig, OmegaConf

from fairseq_mhe.attention import KINDS, Attention, build_attention, kind_class
from fairseq_mhe.attention.base import Option

DEFAULT_ATTENTION = "mhe_mul"
#: Where attention sits, and the option that overrides its kind there.
PLACES = {place: f"{place}_attention" for place in ("encoder", "decoder", "cross")}
#: How fairseq's options of what our attention does not have begin.
_WITHOUT = ("quant_noise", "cross_self_attention", "xformers", "layers_to_keep")


def kind_options() -> dict[str, tuple[Option, list[str]]]:
    """The options that kinds declare, by flag, each with the kinds that use it."""
    options: dict[str, tuple[Option, list[str]]] = {}
    for kind, class_ in KINDS.items():
        for option in class_.OPTIONS:
            options.setdefault(option.flag, (option, []))[1].append(kind)
    return dict(sorted(options.items()))


def size_options() -> dict[str, tuple[Option, list[str]]]:
    """Those of some kinds that change what a model costs: whole numbers."""
    sizes = {}
    for flag, (option, users) in kind_options().items():
        if option.type is int and len(users) < len(KINDS):
            sizes[flag] = option, users
    return sizes


#: Our own options: name -> (type, dataclass field).
OPTIONS: dict[str, tuple[Any, Any]] = {}


def _add(name: str, type_: Any, default: Any, help_: str) -> None:
    OPTIONS[name] = (type_, field(default=default, metadata={"help": help_}))


_add("attention", str, DEFAULT_ATTENTION, f"kind of attention: {', '.join(KINDS)}")
for _place, _name in PLACES.items():
    _add(_name, Optional[str], None, f"kind of {_place} attention (default: --attention)")
_help = "give attention projections biases, as fairseq's own transformer has"
_add("attention_bias", bool, False, _help)
for _name, (_kind_option, _users) in kind_options().items():
    _help = _kind_option.help
    if len(_users) < len(KINDS):
        _help = f"{', '.join(_users)}: {_help}"
    # None is the kind's own default.
    _add(_name, Optional[_kind_option.type], None, _help)
_help = "generate on a CPU with large weights in 8-bit integers: faster, nearly the same"
_add("int8_generation", bool, False, _help)
_help = "products of large weights on a CPU; auto: bf16 where it has AVX512-BF16 or AMX"
_precisions = ChoiceEnum(["float32", "bf16", "auto"])
_add("generation_precision", _precisions, "float32", _help)
_help = "train on a GPU by CUDA graphs, of batches padded to few shapes: faster if they are small"
_add("cuda_graphs", bool, False, _help)


def _flat_fields() -> Iterator[tuple[str, Any, Any]]:
    """fairseq's nested TransformerConfig with the nesting in the names (encoder_embed_dim)."""
    sides = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig}
    for outer in fields(TransformerConfig):
        nested = outer.name in sides
        inner = fields(sides[outer.name]) if nested else (outer,)
        for each in inner:
            if each.name.startswith(_WITHOUT):
                continue
            name = f"{outer.name}_{each.name}" if nested else each.name
            copied = field(default=each.default, metadata=dict(each.metadata))
            yield name, each.type, copied


def config(
    name: str,
    *fairseqs: tuple[str, Any, Any],
    without: Sequence[str] = (),
    base: type = FairseqDataclass,
) -> type[FairseqDataclass]:
    """The dataclass of a model's options: fairseq's, and ours but for those ``without``."""
    ours = [
        (option, *typed) for option, typed in OPTIONS.items() if option not in without
    ]
    return make_dataclass(name, [*fairseqs, *ours], bases=(base,))


#: What --help shows and a checkpoint stores, as plain values.
TransformerMHEConfig = config("TransformerMHEConfig", *_flat_fields())


def fill(args: Any, config: type[FairseqDataclass]) -> None:
    """Set the options that ``args`` lacks to their defaults, unless these refer to the task's."""
    for declared in fields(config):
        name, value = declared.name, declared.default
        refers = str(value).startswith("${")
        if not (hasattr(args, name) or name.startswith("_") or refers):
            setattr(args, name, value)
    for name in ("decoder_input_dim", "decoder_output_dim"):  # as wide as the decoder
        if "decoder_embed_dim" in args and not isinstance(getattr(args, name, None), int):
            setattr(args, name, args.decoder_embed_dim)


def plain_options(cfg: Any) -> argparse.Namespace:
    """A copy of flat options, a namespace or a hydra configuration, as a namespace."""
    if isinstance(cfg, DictConfig):
        values: Any = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
        return argparse.Namespace(**values)
    return argparse.Namespace(**vars(cfg))


def kinds(args: Any) -> dict[str, str]:
    """The kind of attention at each place of ``PLACES``, from flat options."""
    usual = getattr(args, "attention", None) or DEFAULT_ATTENTION
    chosen = {}
    for place, option in PLACES.items():
        chosen[place] = getattr(args, option, None) or usual
    return chosen


def check_options(args: Any, places: Sequence[str]) -> None:
    """ValueError for an unknown kind, an option that no chosen kind uses, or unfit sizes."""
    with torch.device("meta"):  # sublayers without memory, which draw no random numbers
        for place in places:
            build_place(args, place)
    chosen = dict.fromkeys(kinds(args)[place] for place in places)
    for name, (_, users) in kind_options().items():
        given = getattr(args, name, None) is not None
        if given and chosen.keys().isdisjoint(users):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{flag} has no effect on --attention {'/'.join(chosen)}: leave it out, or choose "
                f"one of: {', '.join(users)}"
            )


def build_place(args: Any, place: str) -> Attention:
    """The attention sublayer of a place, from flat options or fairseq's nested configuration."""
    kind = kinds(args)[place]
    side = "encoder" if place == "encoder" else "decoder"
    embed_dim = getattr(args, f"{side}_embed_dim")
    memory_dim = args.encoder_embed_dim if place == "cross" else embed_dim
    options = kind_class(kind).OPTIONS
    own: Any = {option.name: getattr(args, option.flag, None) for option in options}
    return build_attention(
        kind,
        embed_dim,
        getattr(args, f"{side}_attention_heads"),
        kdim=memory_dim,
        vdim=memory_dim,
        dropout=getattr(args, "attention_dropout", 0.0),
        bias=getattr(args, "attention_bias", False),
        **own,
    )

"""The places of attention in a model, and the options that choose a kind for each; no fairseq."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from fairseq_mhe.attention import KINDS, Attention, build_attention, kind_class
from fairseq_mhe.attention.options import Option

DEFAULT_ATTENTION = "mhe_mul"
#: Each place of attention in a model, and the option that sets the kind of attention there.
PLACES = {place: f"{place}_attention" for place in ("encoder", "decoder", "cross")}
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


def sublayers(model: nn.Module) -> Iterator[tuple[str, str, Attention]]:
    """Yield the name, the place (a key of ``PLACES``) and the module of each attention sublayer."""
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            yield name, place_of(name), module


def place_of(name: str) -> str:
    """Return the place of an attention sublayer, or of one of its parameters, from its name."""
    return "cross" if ".encoder_attn" in name else name.split(".")[0]

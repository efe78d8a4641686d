"""``fairseq-mhe fold``: write any checkpoint as fairseq's own model, which needs no extension."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from fairseq_mhe.attention import Attention, kind_class
from fairseq_mhe.checkpoints.checkpoint import (
    checkpoint_path,
    load_by_fairseq,
    open_source,
    save_model,
)
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, check_output
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.convert.compare import (
    BEAM,
    LogitDifference,
    Material,
    add_data,
    open_material,
)
from fairseq_mhe.convert.stock_heads import stock_parameters
from fairseq_mhe.models.options import sublayers

#: A fold is refused if its logits differ by more than this share of the largest logit. Rounding in
#: float32 stays far below this, a wrong fold far above.
_TOLERANCE = 1e-4
_SENTENCES = 500
#: Parameters of fairseq's --scale-heads, --scale-resids, --scale-attn and --scale-fc.
_SCALES = re.compile(r"\.(c_attn|w_resid|(attn_ln|ffn_layernorm)\.weight)$")


def folded_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of a fairseq model that computes the same; UserError if none can."""
    if any(_SCALES.search(name) for name in model.state_dict()):
        raise UserError(
            "a model with --scale-heads, --scale-attn, --scale-fc or --scale-resids has no stock "
            "form: fairseq's own model loses these scales when it loads a checkpoint"
        )
    stock = {name: stock_sublayer(module) for name, _, module in sublayers(model)}
    return with_sublayers(model, stock)


def with_sublayers(
    model: nn.Module, new: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Return a model's state with ``new`` parameters of all attention sublayers."""
    replaced = tuple(f"{name}." for name in new)
    state = {}
    for name, value in model.state_dict().items():
        if not name.startswith(replaced):
            state[name] = value
    for sublayer, parameters in new.items():
        for name, value in parameters.items():
            state[f"{sublayer}.{name}"] = value
    return state


def stock_sublayer(attention: Attention) -> dict[str, Tensor]:
    """Return the sublayer's parameters in fairseq's ``MultiheadAttention``; UserError if none."""
    heads = attention.num_heads
    width = attention.embed_dim
    if width % heads:
        raise UserError(
            f"{heads} heads do not divide the model's width {width}, but fairseq's own attention "
            "requires it: this model has no stock form"
        )
    return stock_parameters(attention.folded(), heads, width // heads)


def fold(material: Material, output: Path) -> tuple[LogitDifference, int | None]:
    """Write the material's source, folded, to ``output`` if the written model computes the same.

    Returns the difference of the logits of both models on the material, and the number of equal
    hypotheses of beam search, or None if the material is random words. Raises UserError if there is
    no exact stock form, or the logits differ by more than rounding.
    """
    source = material.source
    parameters = folded_parameters(source.model)
    kinds = map(kind_class, source.attention.values())
    linear = all(kind.linear_heads for kind in kinds)
    history = {"made_by": "fold", "linear": linear}
    same = None
    with atomic_path(output) as temporary:
        save_model(source, source.stock_options, parameters, temporary, history)
        stock = load_by_fairseq(temporary, material.task)
        logits = material.difference(stock)
        # "not <=" is true for NaN, too.
        if not logits.largest <= _TOLERANCE * max(1.0, logits.largest_logit):
            raise UserError(
                f"the fold of {source.path} is not exact: its logits differ by up to "
                f"{logits.largest:.1e} (largest logit {logits.largest_logit:.1f}), so it is not "
                "kept; please report this"
            )
        if material.data:
            expected = material.search(source.model)
            hypotheses = material.search(stock)
            same = sum(a == b for a, b in zip(hypotheses, expected, strict=True))
    return logits, same


def add_files(parser: argparse.ArgumentParser, source: str, output: str) -> None:
    """Add the arguments IN and OUT, with the help texts ``source`` and ``output``."""
    parser.add_argument("input", type=Path, metavar="IN", help=source)
    parser.add_argument("output", type=Path, metavar="OUT", help=output)


def check_arguments(args: argparse.Namespace) -> None:
    """Raise UserError for an output that cannot be written, and --sentences without --data."""
    check_output(args.output, args.input, checkpoint_path(args.input))
    if args.sentences and not args.data:
        raise UserError("--sentences is for --data: give --data, or leave it out")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = "run folder, or checkpoint with any kind of attention"
    add_files(parser, source, "checkpoint of fairseq's own model to write")
    use = "data folder to compare both models on, also by beam search (default: random words)"
    add_data(parser, use, _SENTENCES)


def run(args: argparse.Namespace) -> None:
    """Fold the checkpoint, and print how the fold differs from it."""
    check_arguments(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences or _SENTENCES)
        logits, same = fold(material, args.output)
    count = sum(len(batch["target"]) for batch in material.compared)
    stock = source.family.stock
    print(f"{args.output}: fairseq's own {stock}, folded from {source.attention_summary}")
    print(
        f"compared on {count} sentences ({material.name}): largest difference of a logit "
        f"{logits.largest:.1e} (float32; largest logit {logits.largest_logit:.1f}; "
        f"{logits.positions} positions)"
    )
    if same is not None:
        print(f"beam {BEAM}: {same} of {count} hypotheses are the same")

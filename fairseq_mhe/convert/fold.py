"""``fairseq-mhe fold``: any checkpoint as fairseq's own ``transformer``, which needs no package."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from fairseq_mhe.attention import Attention, kind_class
from fairseq_mhe.checkpoints.checkpoint import (
    Source,
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
from fairseq_mhe.models.build import sublayers

#: A fold is refused where its logits differ by more than this share of the largest logit: float32
#: rounding stays far below, a wrong fold far above.
_TOLERANCE = 1e-4
#: Parameters of fairseq's --scale-heads, --scale-resids, --scale-attn and --scale-fc.
_SCALES = re.compile(r"\.(c_attn|w_resid|(attn_ln|ffn_layernorm)\.weight)$")


def folded_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The whole float32 state of fairseq's own ``transformer`` that computes what ``model`` does.

    UserError where a sublayer has no exact stock form.
    """
    if any(_SCALES.search(name) for name in model.state_dict()):
        raise UserError(
            "a model with --scale-heads, --scale-attn, --scale-fc or --scale-resids has no stock "
            "form: fairseq's own loses them where it loads a checkpoint"
        )
    stock = {name: stock_sublayer(module) for name, _, module in sublayers(model)}
    return with_sublayers(model, stock)


def with_sublayers(
    model: nn.Module, new: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """A model's float32 state with the parameters of all its attention sublayers replaced."""
    replaced = tuple(f"{name}." for name in new)
    state = {}
    for name, value in model.state_dict().items():
        if not name.startswith(replaced):
            state[name] = value.float() if value.is_floating_point() else value
    for prefix, of_sublayer in new.items():
        for name, value in of_sublayer.items():
            state[f"{prefix}.{name}"] = value.float()
    return state


def stock_sublayer(attention: Attention) -> dict[str, Tensor]:
    """A sublayer's parameters as fairseq's ``MultiheadAttention`` has them; UserError if none."""
    heads = attention.num_heads
    width = attention.embed_dim
    if width % heads:
        raise UserError(
            f"{heads} heads do not divide the model's width {width}, which fairseq's own attention "
            "demands: this model has no stock form"
        )
    return attention.written_out().of_width(width // heads).stock_parameters()


def fold(
    source: Source,
    output: Path,
    data: Path | None = None,
    subset: str = "test",
    sentences: int = 1,
) -> tuple[Material, LogitDifference, int | None]:
    """Write ``source`` folded to ``output``, if what is written computes the same.

    Returns what it is compared on (the first ``sentences`` of a split of ``data``, or random
    words), how logits differ, and how many translations with a beam are the same, if any are made.
    UserError where there is no exact stock form, or the two differ by more than rounding.
    """
    material = open_material(source, data, sentences, subset, measured=False)
    parameters = folded_parameters(source.model)
    kinds = map(kind_class, source.attention.values())
    linear = all(kind.linear_heads for kind in kinds)
    history = {"made_by": "fold", "linear": linear}
    same = None
    with atomic_path(output) as temporary:
        save_model(source, source.stock_options, parameters, temporary, history)
        stock = load_by_fairseq(temporary, material.task)
        logits = material.difference(stock)
        # Neither of a model whose logits are no numbers.
        if not logits.largest <= _TOLERANCE * max(1.0, logits.largest_logit):
            raise UserError(
                f"the fold of {source.path} is not exact: its logits differ by up to "
                f"{logits.largest:.1e} (largest logit {logits.largest_logit:.1f}), so it is not "
                "kept; please report this"
            )
        if data is not None:
            one = material.search(source.model)
            other = material.search(stock)
            same = sum(a == b for a, b in zip(one, other, strict=True))
    return material, logits, same


def add_files(parser: argparse.ArgumentParser, source: str, output: str) -> None:
    """The checkpoint that is read and the one that is written; the words are their help."""
    parser.add_argument("input", type=Path, metavar="IN", help=source)
    parser.add_argument("output", type=Path, metavar="OUT", help=output)


def check_files(args: argparse.Namespace) -> None:
    """UserError, before the work, where a command's output cannot be written or is its input."""
    check_output(args.output, args.input, args.input / "model.pt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = "checkpoint of any kind of attention, or a run folder of translation"
    add_files(parser, source, "the same model as fairseq's own transformer")
    use = "data folder to compare both on, by beam search too (else random words)"
    add_data(parser, use, sentences=500)
    help_ = "split of DATA to compare on (default: %(default)s)"
    parser.add_argument("--subset", default="test", help=help_)


def run(args: argparse.Namespace) -> None:
    """Fold, and print how the fold compares with its source."""
    check_files(args)
    with quiet_fairseq():
        source = open_source(args.input)
        how = args.data, args.subset, args.sentences
        material, (largest, logit, positions), same = fold(source, args.output, *how)
    count = sum(len(batch["target"]) for batch in material.compared)
    stock = source.family.stock
    print(f"{args.output}: fairseq's own {stock}, folded from {source.attention_summary}")
    print(
        f"compared on {count} sentences ({material.name}): largest difference of a logit "
        f"{largest:.1e} (float32; largest logit {logit:.1f}; {positions} positions)"
    )
    if same is not None:
        print(f"beam {BEAM}: {same} of {count} hypotheses are the same")

"""``fairseq-mhe fold``: any checkpoint as fairseq's own ``transformer``, which needs no package."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from fairseq_mhe.attention import Attention, kind_class
from fairseq_mhe.checkpoints.checkpoint import (
    Source,
    load_by_fairseq,
    open_source,
    save_model,
)
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.convert.compare import BEAM, LogitDifference, open_material
from fairseq_mhe.convert.options import add_data, add_files, add_subset, check_files
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.families import TRANSLATION

#: A fold is refused where its logits differ by more than this share of the largest logit: float32
#: rounding stays far below, a wrong fold far above.
_TOLERANCE = 1e-4
#: Parameters of fairseq's --scale-heads, --scale-resids, --scale-attn and --scale-fc.
_SCALES = re.compile(r"\.(c_attn|w_resid|(attn_ln|ffn_layernorm)\.weight)$")


class Report(NamedTuple):
    """How a fold compares with its source; ``same_hypotheses``: None without a search."""

    logits: LogitDifference
    compared: str
    sentences: int
    same_hypotheses: int | None


def folded_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The whole float32 state of fairseq's own ``transformer`` that computes what ``model`` does.

    Raises:
        UserError: a sublayer has no exact stock form.
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
    state = {k: x for k, x in model.state_dict().items() if not k.startswith(replaced)}
    for prefix, of_sublayer in new.items():
        state |= {f"{prefix}.{name}": value for name, value in of_sublayer.items()}
    return {k: x.float() if x.is_floating_point() else x for k, x in state.items()}


def stock_sublayer(attention: Attention) -> dict[str, Tensor]:
    """A sublayer's parameters as fairseq's ``MultiheadAttention`` has them.

    Raises:
        UserError: it has no exact stock form.
    """
    width, rest = divmod(attention.embed_dim, attention.num_heads)
    if rest:
        raise UserError(
            f"{attention.num_heads} heads do not divide the model's width {attention.embed_dim}, "
            "which fairseq's own attention demands: this model has no stock form"
        )
    return attention.written_out().of_width(width).stock_parameters()


def fold(
    source: Source,
    output: Path,
    data: Path | None = None,
    subset: str = "test",
    sentences: int = 1,
) -> Report:
    """Write ``source`` folded to ``output``, if what is written computes the same.

    It is compared on the first ``sentences`` of a split of ``data``, or on random words; of
    translation, by beam search too.

    Raises:
        UserError: the model has no exact stock form, ``output`` cannot be written, the data do not
            belong to the model, or the two differ by more than rounding.
    """
    material = open_material(source, data, sentences, subset, measured=False)
    parameters = folded_parameters(source.model)
    linear = all(kind_class(kind).linear_heads for kind in source.attention.values())
    history, same = {"made_by": "fold", "linear": linear}, None
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
        if data is not None and source.family is TRANSLATION:
            one, other = (material.search(model, BEAM) for model in (source.model, stock))
            same = sum(a == b for a, b in zip(one, other, strict=True))
    count = sum(len(batch["target"]) for batch in material.compared)
    return Report(logits, material.name, count, same)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = "checkpoint of any kind of attention, or a run folder"
    add_files(parser, source, "the same model as fairseq's own transformer")
    use = "data folder to compare both on, translation's beam search too (else random words)"
    add_data(parser, use, sentences=500)
    add_subset(parser)


def run(args: argparse.Namespace) -> None:
    """Fold, and print how the fold compares with its source."""
    check_files(args)
    with quiet_fairseq():
        source = open_source(args.input)
        report = fold(source, args.output, args.data, args.subset, args.sentences)
    logits, count = report.logits, report.sentences
    stock = source.family.stock
    print(f"{args.output}: fairseq's own {stock}, folded from {source.attention_words}")
    print(
        f"compared on {count} sentences ({report.compared}): largest difference of a logit "
        f"{logits.largest:.1e} (float32; largest logit {logits.largest_logit:.1f}; "
        f"{logits.positions} positions)"
    )
    if report.same_hypotheses is not None:
        print(f"beam {BEAM}: {report.same_hypotheses} of {count} hypotheses are the same")

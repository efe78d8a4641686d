"""``fairseq-mhe fold``: any checkpoint as one of fairseq's own ``transformer``, which loads without this package."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.tasks.translation import TranslationTask
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from fairseq_mhe.attention import Attention, variant
from fairseq_mhe.checkpoints.checkpoint import Source, open_source, refuse_same_file, save_stock
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.convert.compare import LogitDifference, logit_difference, quiet_fairseq, search
from fairseq_mhe.convert.sentences import batches, random_batches, sentence_pairs, task_of
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.prepare.data_folder import open_data

#: A fold is refused where its logits differ by more than this share of the largest logit: float32
#: rounding stays far below, a wrong fold far above.
TOLERANCE = 1e-4
BEAM = 5


@dataclass(frozen=True)
class Report:
    """What a fold was found to be: the logits' difference, and of how many searches the hypothesis is the same."""

    logits: LogitDifference
    on: str
    sentences: int
    same_hypotheses: int | None


def folded_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The whole state of fairseq's own ``transformer`` that computes what ``model`` does, in float32.

    Raises:
        UserError: a sublayer has no exact stock form; the line says which and why.
    """
    attention = {f"{name}.": stock_sublayer(module, name) for name, _, module in sublayers(model)}
    parameters = {
        name: value.float() if value.is_floating_point() else value
        for name, value in model.state_dict().items()
        if not name.startswith(tuple(attention))
    }
    for prefix, of_sublayer in attention.items():
        parameters |= {f"{prefix}{name}": value for name, value in of_sublayer.items()}
    return parameters


def stock_sublayer(attention: Attention, name: str) -> dict[str, Tensor]:
    """One sublayer's parameters as fairseq's ``MultiheadAttention`` has them.

    Raises:
        UserError: it has no exact stock form.
    """
    width, rest = divmod(attention.embed_dim, attention.num_heads)
    if rest:
        raise UserError(
            f"{attention.num_heads} heads do not divide the model's width {attention.embed_dim}, "
            "which fairseq's own attention demands: this model has no stock form"
        )
    try:
        return attention.written_out().of_width(width).stock_parameters()
    except ValueError as error:
        raise UserError(
            f"{name} ({attention.kind}) has no exact stock form: {error}; {attention.folds}"
        ) from None


def fold(
    source: Source, output: Path, data: Path | None, sentences: int, subset: str, console: Console
) -> Report:
    """Write ``source`` folded to ``output`` once what was written is found to compute the same.

    Raises:
        UserError: it has no exact stock form, ``output`` cannot be written, or the data do not
        belong to the model.
    """
    parameters = folded_parameters(source.model)
    linear = all(variant(kind).linear_heads for kind in source.attention.values())
    made = {"made_by": "fold", "linear": linear}
    with atomic_path(output) as temporary:
        save_stock(source, parameters, temporary, made)
        return verify(source, temporary, data, sentences, subset, console)


def verify(
    source: Source, path: Path, data: Path | None, sentences: int, subset: str, console: Console
) -> Report:
    """Load ``path`` as fairseq does and compare it with ``source``.

    Raises:
        UserError: the two differ by more than rounding, or the data do not belong to the model.
    """
    task = source.task() if data is None else task_of(open_data(data), source)
    stock = load_stock(path, task)
    if data is None:
        found, on = random_batches(task), "random words"
    else:
        pairs = sentence_pairs(task, subset, sentences)
        found, on = batches(task, subset, pairs), f"{subset} of {data}"
    count = sum(len(batch["id"]) for batch in found)
    steps = len(found) * (1 if data is None else 3)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("comparing", total=steps)

        def advance() -> None:
            progress.advance(bar)

        logits = logit_difference(source.model, stock, found, task.target_dictionary.pad(), advance)
        same = None
        if data is not None:
            one, other = (
                search(model, task, found, BEAM, advance) for model in (source.model, stock)
            )
            same = sum(one[index] == other[index] for index in one)
    if logits.relative > TOLERANCE:
        raise UserError(
            f"the fold of {source.path} is not exact: its logits differ by up to {logits.largest:.1e} (largest logit "
            f"{logits.largest_logit:.1f}), so it is not kept; please report this"
        )
    return Report(logits, on, count, same)


def load_stock(path: Path, task: TranslationTask) -> nn.Module:
    """The model of a checkpoint, through fairseq's own loading."""
    models, _ = checkpoint_utils.load_model_ensemble([str(path)], task=task)
    return models[0].eval()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe fold``."""
    parser.add_argument(
        "input", type=Path, metavar="IN", help="checkpoint of any kind of attention"
    )
    parser.add_argument(
        "output", type=Path, metavar="OUT", help="the same model as fairseq's own transformer"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DATA",
        help="data folder to compare both on, beam search too (else random words)",
    )
    parser.add_argument("--subset", default="test", help="split of DATA (default: %(default)s)")
    parser.add_argument(
        "--sentences",
        type=positive,
        default=500,
        metavar="N",
        help="of it, the first N pairs (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Fold, compare, and say what was found."""
    refuse_same_file(args.input, args.output)
    with quiet_fairseq():
        source = open_source(args.input)
        report = fold(source, args.output, args.data, args.sentences, args.subset, Console())
    for line in describe(source, args.output, report):
        print(line)


def describe(source: Source, output: Path, report: Report) -> list[str]:
    """The report for people."""
    logits = report.logits
    lines = [
        f"{output}: fairseq's own transformer, folded from {source.attention_words}",
        f"compared on {report.sentences} sentences ({report.on}): largest difference of a logit {logits.largest:.1e} "
        f"(float32; largest logit {logits.largest_logit:.1f}; {logits.positions} positions)",
    ]
    if report.same_hypotheses is not None:
        lines.append(
            f"beam {BEAM}: {report.same_hypotheses} of {report.sentences} hypotheses are the same"
        )
    return lines

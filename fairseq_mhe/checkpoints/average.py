"""``fairseq-mhe average``: the plain mean of several checkpoints' weights, as a checkpoint."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import (
    SOURCES,
    provenance,
    save_checkpoint,
    updates_made,
)
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, check_output

#: How the names of options begin that change what weights mean.
_MEANING = (
    "_name",
    "arch",
    "encoder",
    "decoder",
    "share",
    "activation_fn",
    "no_scale_embedding",
    "attention",
    "cross",
    "head_",
    "collaborative",
    "no_token_positional_embeddings",
)
#: Parts of the names of options among them that only say how a model was trained or started.
_HARMLESS = ("drop", "_path")


def average_checkpoints(paths: Sequence[Path], output: Path) -> None:
    """Write the mean of weights, accumulated in float64, in float32, whole or not at all.

    All else comes from the newest checkpoint, without the optimizer's state. UserError where they
    are of different models, or folds whose mean means nothing.
    """
    newest = max(paths, key=lambda path: updates_made(read_checkpoint(path)))
    state = read_checkpoint(newest)
    sums: dict[str, Tensor] = {}
    for path in paths:
        other = read_checkpoint(path)
        _check_same_model(state, newest, other, path)
        _check_linear(other, path)
        for name, value in other["model"].items():
            if value.is_floating_point():
                sums[name] = value.double() + sums.get(name, 0.0)
    shared: dict[Any, Tensor] = {}  # tied embeddings stay tied, in a smaller file
    for name, total in sums.items():
        weight = state["model"][name]
        mean = (total / len(paths)).float()
        memory = (weight.data_ptr(), weight.shape)
        sums[name] = shared.setdefault(memory, mean)
    state["model"] = {**state["model"], **sums}
    state.pop("last_optimizer_state", None)
    state[SOURCES] = [path.name for path in paths]
    with atomic_path(output) as temporary:
        save_checkpoint(state, temporary)


def saved_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a training's folder by their updates, fewest first, each number once.

    Averages are left out, and the best, which repeat others or are not among the last. UserError
    where there is none.
    """
    by_updates: dict[int, Path] = {}
    # In falling order, so that numbered names replace checkpoint_last.
    for path in sorted(folder.glob("checkpoint*.pt"), reverse=True):
        if path.name.startswith(("checkpoint_best", "checkpoint.best_")):
            continue
        state = read_checkpoint(path)
        if SOURCES not in state:
            by_updates[updates_made(state)] = path
    if not by_updates:
        problem = f"{folder} has no checkpoint (checkpoint*.pt)"
        raise UserError(f"{problem}: give the --save-dir of a fairseq training")
    return [by_updates[number] for number in sorted(by_updates)]


def _check_same_model(state: Any, path: Path, other: Any, other_path: Path) -> None:
    ours = _model(state)
    theirs = _model(other)
    for name in [*ours, *theirs]:
        mine = ours.get(name, "absent")
        its = theirs.get(name, "absent")
        if mine != its:
            raise UserError(
                f"{other_path} and {path} are not of the same model: {name} is {its} and "
                f"{mine}; average checkpoints of one training run"
            )


def _check_linear(state: dict[str, Any], path: Path) -> None:
    """Refuse a fold whose weights are products: their mean is not the product of the means."""
    history = provenance(state)
    if history.get("made_by") == "fold" and not history.get("linear"):
        kinds = ", ".join(sorted(set(history["source"]["attention"].values())))
        raise UserError(
            f"{path} was folded from {kinds}: its weights are products, and a mean of products is "
            "not the product of means; average the checkpoints first, then fold the average"
        )


def _model(state: dict[str, Any]) -> dict[str, Any]:
    """Each parameter's shape, and the options that no shape tells, such as the number of heads."""
    model: dict[str, Any] = {}
    for name, value in state["model"].items():
        model[name] = tuple(value.shape)
    for name, value in model_options(state).items():
        harmless = any(word in name for word in _HARMLESS)
        if name.startswith(_MEANING) and not harmless:
            model[name] = value
    return model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe average``."""
    add = parser.add_argument
    help_ = "checkpoints, or with --last a folder"
    add("checkpoints", nargs="+", type=Path, metavar="CKPT", help=help_)
    help_ = "the averaged checkpoint"
    add("--output", required=True, type=Path, metavar="OUT", help=help_)
    help_ = "average the last N checkpoints of the folder CKPT"
    add("--last", type=positive, metavar="N", help=help_)


def run(args: argparse.Namespace) -> None:
    """Average and name what went in."""
    chosen = args.checkpoints
    if args.last is not None:
        if len(chosen) != 1:
            raise UserError("--last takes exactly one folder")
        saved = saved_checkpoints(chosen[0])
        if len(saved) < args.last:
            count = f"{len(saved)} different updates, fewer than --last {args.last}"
            raise UserError(f"{chosen[0]} has checkpoints of {count}")
        chosen = saved[-args.last :]
    check_output(args.output, *chosen)
    average_checkpoints(chosen, args.output)
    print(f"{args.output}: mean of {', '.join(str(path) for path in chosen)}")

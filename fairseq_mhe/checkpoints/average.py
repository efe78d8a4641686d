"""``fairseq-mhe average``: writes a checkpoint with the mean of several checkpoints' weights."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import (
    SOURCES,
    not_finite,
    provenance,
    save_checkpoint,
    updates_made,
)
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, check_output

#: Options with these prefixes change what a model computes from its weights.
_MODEL_OPTIONS = (
    "_name",
    "arch",
    "encoder",
    "decoder",
    "share",
    "activation_fn",
    "pooler_activation_fn",
    "untie",
    "no_scale_embedding",
    "attention",
    "cross",
    "head_",
    "no_token_positional_embeddings",
)
#: Measured: weights of two seeds have a cosine of 0.00, of one training's updates 30 and 300 0.87.
_LEAST_COSINE = 0.1
#: Options with these words in their names matter in training only, even with such a prefix.
_TRAINING_OPTIONS = ("drop", "_path")


def average_checkpoints(paths: Sequence[Path], output: Path) -> None:
    """Write the mean of the weights atomically, in float32; the sums are in float64.

    All else comes from the newest checkpoint, without the optimizer's state. Raises UserError for
    checkpoints of different models or trainings, for weights that are not finite, and for folds
    that must be averaged before they are folded.
    """
    first = newest = read_checkpoint(paths[0])
    sums: dict[str, Tensor] = {}
    for path in paths:
        state = first if path == paths[0] else read_checkpoint(path)
        _check_same_model(first, paths[0], state, path)
        _check_linear(state, path)
        _check_same_training(first["model"], paths[0], state["model"], path)
        for name, value in state["model"].items():
            if value.is_floating_point():
                sums[name] = value.double() + sums.get(name, 0.0)
        if updates_made(state) > updates_made(newest):
            newest = state
    means = {}
    shared: dict[Any, Tensor] = {}  # tied embeddings stay tied
    for name, total in sums.items():
        weight = newest["model"][name]
        memory = (weight.data_ptr(), weight.shape)
        means[name] = shared.setdefault(memory, (total / len(paths)).float())
    newest["model"] = {**newest["model"], **means}
    newest.pop("last_optimizer_state", None)
    newest[SOURCES] = [path.name for path in paths]
    with atomic_path(output) as temporary:
        save_checkpoint(newest, temporary)


def saved_checkpoints(folder: Path) -> list[Path]:
    """Return a training's checkpoints in order of their updates, one for each number of updates.

    It skips averages and the best checkpoints (repeated or older ones). UserError if none remains.
    """
    by_updates: dict[int, Path] = {}
    # In reverse order numbered checkpoints follow checkpoint_last and replace it here.
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
    model = _description(state)
    other_model = _description(other)
    for name in [*model, *other_model]:
        value = model.get(name, "absent")
        other_value = other_model.get(name, "absent")
        if value != other_value:
            raise UserError(
                f"{other_path} and {path} are not of the same model: {name} is {other_value} "
                f"and {value}; average checkpoints of one training run"
            )


def _check_linear(state: dict[str, Any], path: Path) -> None:
    """Raise UserError for a fold whose weights are products, because means of them are wrong."""
    history = provenance(state)
    if history.get("made_by") == "fold" and not history.get("linear"):
        kinds = ", ".join(sorted(set(history["source"]["attention"].values())))
        raise UserError(
            f"{path} was folded from {kinds}: its weights are products, and a mean of products is "
            "not the product of means; average the checkpoints first, then fold the average"
        )


def _check_same_training(
    weights: dict[str, Tensor], path: Path, others: dict[str, Tensor], other_path: Path
) -> None:
    """Raise UserError for weights that are not finite, or that come from another initialisation.

    The mean of two trainings translates to noise, because their hidden units have other orders.
    """
    product = length = other_length = 0.0
    for name, other in others.items():
        if not other.isfinite().all():
            raise UserError(f"{other_path}: {not_finite(name)}")
        if other.dim() > 1:  # biases and scales begin alike in all trainings
            weight = weights[name].double()
            product += float((weight * other.double()).sum())
            length += float(weight.square().sum())
            other_length += float(other.double().square().sum())
    cosine = product / math.sqrt(length * other_length or 1.0)
    if length and cosine < _LEAST_COSINE:
        raise UserError(
            f"{other_path} and {path} are not of one training: the cosine of their weights is "
            f"{cosine:.2f}; average checkpoints of one training run"
        )


def _description(state: dict[str, Any]) -> dict[str, Any]:
    """Return parameters' shapes, and options that shapes do not show, such as number of heads."""
    facts = {name: tuple(weight.shape) for name, weight in state["model"].items()}
    for name, value in model_options(state).items():
        is_for_training = any(word in name for word in _TRAINING_OPTIONS)
        if name.startswith(_MODEL_OPTIONS) and not is_for_training:
            facts[name] = value
    return facts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-mhe average``."""
    add = parser.add_argument
    help_ = "checkpoints, or one folder with --last"
    add("checkpoints", nargs="+", type=Path, metavar="CKPT", help=help_)
    help_ = "file for the averaged checkpoint"
    add("--output", required=True, type=Path, metavar="OUT", help=help_)
    help_ = "average the last N checkpoints of the folder CKPT"
    add("--last", type=positive, metavar="N", help=help_)


def run(args: argparse.Namespace) -> None:
    """Average the checkpoints and print their paths."""
    paths = args.checkpoints
    if args.last is not None:
        if len(paths) != 1:
            raise UserError("--last takes exactly one folder")
        (folder,) = paths
        saved = saved_checkpoints(folder)
        if len(saved) < args.last:
            count = f"{len(saved)} different updates, fewer than --last {args.last}"
            raise UserError(f"{folder} has checkpoints of {count}")
        paths = saved[-args.last :]
    check_output(args.output, *paths)
    average_checkpoints(paths, args.output)
    print(f"{args.output}: mean of {', '.join(map(str, paths))}")

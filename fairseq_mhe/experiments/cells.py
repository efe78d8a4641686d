"""What ``train``, ``run-table`` and the studies share: which data, how much of the recipe, room."""

import argparse
import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import devices, precision
from fairseq_mhe.runs.recipes import Recipe, recipe
from fairseq_mhe.runs.run import Run
from fairseq_mhe.runs.scoring import bleu_tokeniser
from fairseq_mhe.runs.training import trained

#: Bytes of a checkpoint for each parameter: float32 weights and Adam's two moments.
_CHECKPOINT_BYTES = 12
#: fairseq's own symbols in a dictionary, which its file does not name.
_SPECIAL_SYMBOLS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that they share."""
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DATA", help="a prepared data folder")
    add("--out", type=Path, required=True, metavar="RUNS", help="the folder of run folders")
    number: dict[str, Any] = {"type": positive, "metavar": "N"}
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--updates", help="updates, instead of the recipe's", **number)
    told = "this share of the recipe's updates: a rehearsal"
    names = ("--fraction", "--updates-fraction")
    how_long.add_argument(*names, type=float, metavar="F", help=told)
    add("--batch-tokens", help="tokens of an update, on all devices together", **number)
    told = "tokens that a device takes at a time: less needs less memory"
    add("--max-tokens", help=told, **number)
    add("--subset", default="test", help="what is translated and scored (default: %(default)s)")
    told = "write logs for TensorBoard into each run folder"
    add("--tensorboard", action="store_true", help=told)
    devices.add_arguments(parser)
    precision.add_argument(parser)


def kind(text: str) -> str:
    """A kind of attention.

    Raises:
        UserError: there is no such kind.
    """
    if text not in KINDS:
        raise UserError(f"unknown attention {text!r}; choose of: {', '.join(KINDS)}")
    return text


def words(text: str) -> list[str]:
    """What stands between commas, each once."""
    return list(dict.fromkeys(text.split(",")))


def seeds(text: str) -> list[int]:
    """Random seeds with commas between.

    Raises:
        UserError: one is no whole number.
    """
    try:
        return list(dict.fromkeys(map(seed, words(text))))  # 01 is 1
    except argparse.ArgumentTypeError as error:
        told = "give whole numbers with commas between"
        raise UserError(f"--seeds {text}: {told}: {error}") from None


def chosen_recipe(row: str, args: argparse.Namespace) -> Recipe:
    """A row's recipe with what the options change.

    Raises:
        UserError: an unknown row, a share that is none, or a batch that cannot be made.
    """
    found = recipe(row)
    training = found.training
    if args.fraction is not None:
        if not 0 < args.fraction <= 1:
            raise UserError(
                f"--fraction {args.fraction:g} is no share: give more than 0 and at most 1"
            )
        training = training.shortened(max(1, round(training.updates * args.fraction)))
    if args.updates is not None:
        training = training.shortened(args.updates)
    batch_tokens = args.batch_tokens or training.batch_tokens
    max_tokens = args.max_tokens or training.max_tokens
    if args.batch_tokens and not args.max_tokens:
        max_tokens = min(max_tokens, batch_tokens)
    training = training.batched(batch_tokens, max_tokens)
    if not args.max_tokens:
        training = training.shared_by(args.gpus or args.processes or 1)
    chosen = precision.chosen(args.precision, devices.on_gpu(args), args.out)
    return replace(found, training=replace(training, precision=chosen))


def check_subset(data: DataFolder, subset: str, tokenise: str | None = None) -> None:
    """See that a data folder has what is to be translated, and that it can be scored.

    Raises:
        UserError: it has no such subset; the line names those that it has. Or BLEU's tokeniser is
        not installed.
    """
    bleu_tokeniser(data.languages[1], tokenise)
    wanted = data.text(subset, 0)
    if not wanted.is_file() or Path(subset).name != subset:
        there = sorted(path.stem for path in wanted.parent.glob(f"*.{data.languages[0]}"))
        raise UserError(f"{data.folder} has no {subset!r}: give a --subset of {', '.join(there)}")


def check_tensorboard(wanted: bool) -> None:
    """See that fairseq can write logs for TensorBoard: it goes on without, silently.

    Raises:
        UserError: it cannot.
    """
    there = any(importlib.util.find_spec(name) for name in ("tensorboard", "tensorboardX"))
    if wanted and not there:
        raise UserError(
            "--tensorboard needs TensorBoard: pip install tensorboard, or leave the option out"
        )


def check_disk(runs: Sequence[Run], data: DataFolder) -> None:
    """See that the checkpoints of all that is not trained yet have room.

    Raises:
        UserError: they have not.
    """
    waiting = [run for run in runs if not trained(run)]
    if not waiting:
        return
    needed = sum(_checkpoints_bytes(run, data) for run in waiting)
    folder = waiting[0].folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"the checkpoints of {len(waiting)} trainings need about {needed / 1e9:,.1f} GB, and "
            f"{folder} has {free / 1e9:,.1f} GB free: make room, or train fewer cells at a "
            "time"
        )


def _checkpoints_bytes(run: Run, data: DataFolder) -> int:
    """What a training's checkpoints will still take."""
    with data.dictionary(0).open("rb") as dictionary:
        symbols = sum(1 for _ in dictionary) + _SPECIAL_SYMBOLS
    attention = run.settings["attention"]
    chosen = {f"{place}_attention": kind for place, kind in attention.items()}
    model = build_on_meta(run.row, attention["encoder"], symbols, **chosen)
    kept = run.training.average + 1 + 3  # the last, the best, and one that is being written
    present = sum(path.stat().st_size for path in run.checkpoints.glob("*.pt"))
    return max(0, kept * _CHECKPOINT_BYTES * total_parameters(model) - present)

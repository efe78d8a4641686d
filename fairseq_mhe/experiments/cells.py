"""What ``train``, ``run-table`` and the studies share: which data, how much of the recipe, room."""

import argparse
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import devices, precision
from fairseq_mhe.runs.recipes import Recipe, read_recipe, recipe
from fairseq_mhe.runs.scoring import bleu_tokeniser


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
    told = "a recipe of your own, in place of a row's: a YAML file (see fairseq-mhe recipe)"
    add("--recipe", type=Path, metavar="FILE", help=told)
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


def kinds(text: str) -> list[str]:
    """Kinds of attention with commas between, each once, or all.

    Raises:
        UserError: there is no such kind.
    """
    return list(KINDS) if text == "all" else [kind(word) for word in words(text)]


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


def chosen_recipe(row: str | None, args: argparse.Namespace) -> Recipe:
    """A row's recipe, or that of --recipe, with what the options change.

    Raises:
        UserError: an unknown row, a share that is none, or a batch that cannot be made.
    """
    if (row is None) == (args.recipe is None):
        raise UserError("give a row or --recipe FILE, one of the two")
    found = read_recipe(args.recipe) if args.recipe else recipe(row or "")
    training = found.training
    if args.fraction is not None:
        if not 0 < args.fraction <= 1:
            raise UserError(
                f"--fraction {args.fraction:g} is no share: give more than 0 and at most 1"
            )
        training = training.shortened(max(1, round(training.updates * args.fraction)))
    if args.updates is not None:
        training = training.shortened(args.updates)
    if args.batch_tokens or args.max_tokens:
        training = training.batched(args.batch_tokens, args.max_tokens)
    if args.precision != precision.AUTO or training.precision == precision.FLOAT32:
        chosen = precision.chosen(args.precision, devices.on_gpu(args))
        training = training.with_precision(chosen)
    return replace(found, training=training)


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

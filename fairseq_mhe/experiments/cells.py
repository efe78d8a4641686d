"""Options that ``train``, ``run-table`` and the studies share: the data, the recipe, the scores."""

import argparse
from dataclasses import replace
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import number, positive, seed, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.recipes import Recipe, read_recipe, recipe
from fairseq_mhe.runs.scoring import add_tokeniser, bleu_tokeniser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that they share."""
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DATA", help="a prepared data folder")
    add("--out", type=Path, required=True, metavar="RUNS", help="the folder of run folders")
    either = parser.add_mutually_exclusive_group().add_argument
    either("--updates", type=positive, metavar="N", help="updates, instead of the recipe's")
    help_ = "this share of the recipe's updates: a rehearsal"
    either("--fraction", "--updates-fraction", type=_share, metavar="F", help=help_)
    help_ = "tokens of an update, on all devices together"
    add("--batch-tokens", type=positive, metavar="N", help=help_)
    help_ = "tokens that a device takes at a time: less needs less memory"
    add("--max-tokens", type=positive, metavar="N", help=help_)
    help_ = "a recipe of your own, in place of a row's: a YAML file (see fairseq-mhe recipe)"
    add("--recipe", type=Path, metavar="FILE", help=help_)
    add("--subset", default="test", help="what is translated and scored (default: %(default)s)")
    help_ = "write logs for TensorBoard into each run folder"
    add("--tensorboard", action="store_true", help=help_)
    add_tokeniser(parser)
    devices.add_arguments(parser)


def _share(text: str) -> float:
    share = number(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: give more than 0 and at most 1")
    return share


#: Types of options: kinds of attention, or all; random seeds; with commas between, each once.
kinds = some_of(KINDS)


def seeds(text: str) -> list[int]:
    return list(dict.fromkeys(map(seed, text.split(","))))  # 01 is 1


def chosen_recipe(row: str | None, args: argparse.Namespace) -> Recipe:
    """A row's recipe, or that of --recipe, with what the options change.

    Raises:
        UserError: an unknown row, or a batch that cannot be made.
    """
    if (row is None) == (args.recipe is None):
        raise UserError("give a row or --recipe FILE, one of the two")
    chosen = read_recipe(args.recipe) if args.recipe else recipe(row or "")
    training = chosen.training
    if args.fraction:
        training = training.shortened(max(1, round(training.updates * args.fraction)))
    if args.updates:
        training = training.shortened(args.updates)
    if args.batch_tokens or args.max_tokens:
        training = training.batched(args.batch_tokens, args.max_tokens)
    if args.precision != "auto" or training.precision == "float32":
        training = training.with_precision(devices.precision(args))
    return replace(chosen, training=training)


def check_subset(data: DataFolder, subset: str, tokenise: str | None = None) -> None:
    """See that a data folder has what is to be translated, and that it can be scored.

    Raises:
        UserError: it has no such subset; the line names those that it has. Or BLEU's tokeniser is
            not installed.
    """
    bleu_tokeniser(data.languages[1], tokenise)
    names = sorted(path.stem for path in (data.folder / "raw").glob(f"*.{data.languages[0]}"))
    if subset not in names:
        raise UserError(
            f"{data.folder} has no {subset!r}: give a --subset of {', '.join(names)}"
        )

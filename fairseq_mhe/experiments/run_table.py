"""``fairseq-mhe run-table``: rows x kinds x seeds trained, scored and tabulated, each cell once."""

import argparse
from collections.abc import Sequence

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.report.translation_table import PAPER
from fairseq_mhe.runs import devices, precision, slurm
from fairseq_mhe.runs.recipes import RECIPES, Recipe
from fairseq_mhe.runs.scoring import add_tokeniser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-table``."""
    add = parser.add_argument
    told = f"of {', '.join(RECIPES)} (default: the paper's)"
    add("--rows", default=",".join(ROWS), metavar="ROW,...", help=told)
    add("--kinds", default="mha,mhe_mul", metavar="KIND,...", help="or all (default: %(default)s)")
    add("--seeds", default="1", metavar="N,...", help="random seeds (default: %(default)s)")
    add("--title", metavar="TEXT", help="heading (default: languages and number of pairs)")
    add("--finished-only", action="store_true", help="train nothing: the table of what is finished")
    cells.add_arguments(parser)
    add_tokeniser(parser)
    slurm.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Do what is not done yet, and print the table."""
    every = args.kinds == "all"
    kinds = list(KINDS) if every else [cells.kind(word) for word in cells.words(args.kinds)]
    seeds = cells.seeds(args.seeds)
    recipes = recipes_of(args)
    how = (args.subset, args.tensorboard, args.bleu_tokenizer)
    table_run = TableRun([], open_prepared(args.data), args.out, *how)
    if slurm.asked_for(args):
        for recipe in recipes:
            training = recipe.training
            print(f"{recipe.row}: {training.arithmetic(args.gpus or args.processes or 1)}")
        table_run.open(recipes, kinds, seeds)
        slurm.submit(table_run.runs, args)
        return
    with only_one(table_run.out, below=False):
        table_run.open(recipes, kinds, seeds)
        title = _title(args, table_run.data, recipes)
        waiting = table_run.waiting()
        if waiting and not args.finished_only:
            device = devices.asked_for(args, len(waiting))
            where = device.describe(precision.told(table_run.runs))
            lines = [f"{len(waiting)} of {len(table_run.runs)} cells to do, {where}"]
            for recipe in recipes:
                training = recipe.training
                batch = training.arithmetic(device.workers)
                lines.append(f"  {recipe.row}: {training.updates:,} updates, {batch}")
            say("\n".join(lines))
            table_run.work(device, after=lambda: table_run.tabulate(title, PAPER))
        table_run.tabulate(title, PAPER)
    print((table_run.out / "table.md").read_text(encoding="utf-8"), end="")
    say(", ".join(str(table_run.out / name) for name in PAPER.files))


def recipes_of(args: argparse.Namespace) -> list[Recipe]:
    """Of each row.

    Raises:
        UserError: as `cells.chosen_recipe`.
    """
    return [cells.chosen_recipe(row, args) for row in cells.words(args.rows.lower())]


def _title(args: argparse.Namespace, data: DataFolder, recipes: Sequence[Recipe]) -> str:
    """The heading, which says so where it is of a rehearsal."""
    pairs = data.manifest["lines"]["train"]
    named = args.title or f"{'-'.join(data.languages)}, {pairs:,} pairs"
    return f"{named}{rehearsal(recipes)}"


def rehearsal(recipes: Sequence[Recipe]) -> str:
    """What a title must say where the paper's rows do not follow their recipe; the updates."""
    told = f", {_span([found.training.updates for found in recipes], '{:,}')} updates"
    paper = [
        (found.training, RECIPES[found.row].training) for found in recipes if found.row in ROWS
    ]
    shares = [100 * ours.updates / theirs.updates for ours, theirs in paper]
    if shares and min(shares) < 100:
        told += f": a rehearsal at {_span(shares, '{:.3g}')}% of the steps, no result"
    if any(ours.batch_tokens != theirs.batch_tokens for ours, theirs in paper):
        told += ", with batches of another size than the recipe's"
    return told


def _span(numbers: Sequence[float], form: str) -> str:
    """The least and the largest, or the one that they are."""
    ends = [form.format(number) for number in (min(numbers), max(numbers))]
    return " to ".join(dict.fromkeys(ends))

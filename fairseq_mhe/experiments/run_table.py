"""``fairseq-mhe run-table``: rows x kinds x seeds trained, scored and tabulated, each cell once."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.report.translation_table import PAPER
from fairseq_mhe.runs import devices, slurm
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipes import NAMES, Recipe, recipe
from fairseq_mhe.runs.scoring import add_tokeniser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-table``."""
    add = parser.add_argument
    told = f"of {', '.join(NAMES)} (default: the paper's)"
    add("--rows", metavar="ROW,...", help=told)
    add("--kinds", default="mha,mhe_mul", metavar="KIND,...", help="or all (default: %(default)s)")
    add("--seeds", default="1", metavar="N,...", help="random seeds (default: %(default)s)")
    add("--title", metavar="TEXT", help="heading (default: languages and number of pairs)")
    add("--finished-only", action="store_true", help="train nothing: the table of what is finished")
    cells.add_arguments(parser)
    add_tokeniser(parser)
    slurm.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Do what is not done yet, and print the table."""
    kinds, seeds = cells.kinds(args.kinds), cells.seeds(args.seeds)
    recipes = recipes_of(args)
    how = (args.subset, args.tensorboard, args.bleu_tokenizer)
    table_run = TableRun([], open_prepared(args.data), args.out, *how)
    if slurm.asked_for(args):
        for found in recipes:
            training = found.training
            batch = training.arithmetic(args.gpus or args.processes or 1)
            print(f"{found.row}: {batch}, {training.precision}")
        table_run.open(recipes, kinds, seeds)
        jobs = {
            each.name: {"command": "run-table", "run": str(each.folder), "config": each.config}
            for each in table_run.waiting()
        }
        slurm.submit(jobs, len(table_run.runs), args)
        return
    with only_one(table_run.out, below=False):
        table_run.open(recipes, kinds, seeds)
        title = _title(args, table_run.data, recipes)
        waiting = table_run.waiting()
        if waiting and not args.finished_only:
            device = devices.asked_for(args, len(waiting))
            where = device.describe(recipes[0].training.precision)
            lines = [f"{len(waiting)} of {len(table_run.runs)} cells to do, {where}"]
            for found in recipes:
                batch = found.training.arithmetic(device.workers)
                lines.append(f"  {found.row}: {found.training.updates:,} updates, {batch}")
            say("\n".join(lines))
            table_run.work(device, after=lambda: table_run.tabulate(title, PAPER))
        table_run.tabulate(title, PAPER)
    print((table_run.out / "table.md").read_text(encoding="utf-8"), end="")
    say(", ".join(str(table_run.out / name) for name in PAPER.files))


def recipes_of(args: argparse.Namespace) -> list[Recipe]:
    """Of each row, or of --recipe.

    Raises:
        UserError: as `cells.chosen_recipe`.
    """
    if args.recipe:
        return [cells.chosen_recipe(args.rows, args)]
    rows = cells.words((args.rows or ",".join(ROWS)).lower())
    return [cells.chosen_recipe(row, args) for row in rows]


def run_job(job: dict[str, Any]) -> None:
    """One cell of a table, as a SLURM job."""
    args = argparse.Namespace(**job)
    run = Job(Path(args.run), args.config)
    how = (args.subset, args.tensorboard, args.bleu_tokenizer)
    cell = TableRun([[run]], open_prepared(run.place("data")), run.folder.parent, *how)
    cell.work(devices.asked_for(args, 1))


def _title(args: argparse.Namespace, data: DataFolder, recipes: Sequence[Recipe]) -> str:
    """The heading, which says so where it is of a rehearsal."""
    pairs = data.manifest["lines"]["train"]
    named = args.title or f"{'-'.join(data.languages)}, {pairs:,} pairs"
    return f"{named}{rehearsal(recipes)}"


def rehearsal(recipes: Sequence[Recipe]) -> str:
    """What a title must say where the paper's rows do not follow their recipe; the updates."""
    told = f", {_span([found.training.updates for found in recipes], '{:,}')} updates"
    paper = [(found.training, recipe(found.row).training) for found in recipes if found.row in ROWS]
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

"""``fairseq-mhe run-table``: rows x kinds x seeds trained, scored and tabulated, each cell once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.report.table import PAPER
from fairseq_mhe.runs import devices, slurm
from fairseq_mhe.runs.pipeline import open_runs
from fairseq_mhe.runs.recipes import RECIPES, Recipe, recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-table``."""
    add = parser.add_argument
    add(
        "--rows",
        default=",".join(ROWS),
        metavar="ROW,...",
        help=f"of {', '.join(RECIPES)} (default: the paper's)",
    )
    add("--kinds", default="mha,mhe_mul", metavar="KIND,...", help="or all (default: %(default)s)")
    add("--seeds", default="1", metavar="N,...", help="random seeds (default: %(default)s)")
    add("--title", metavar="TEXT", help="heading (default: languages and number of pairs)")
    add("--finished-only", action="store_true", help="train nothing: the table of what is finished")
    cells.add_arguments(parser)
    slurm.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Do what is not done yet, and print the table."""
    kinds = (
        list(VARIANTS) if args.kinds == "all" else list(map(cells.kind, cells.words(args.kinds)))
    )
    seeds = cells.seeds(args.seeds)
    recipes = [cells.chosen_recipe(row, args) for row in cells.words(args.rows)]
    cells.check_tensorboard(args.tensorboard)
    data = open_prepared(args.data)
    out = output_folder(args.out)
    if args.slurm:
        workers = args.gpus or args.processes or 1
        for wanted in recipes:
            print(f"{wanted.row}: {wanted.training.arithmetic(workers)}")
        rows = [open_runs(wanted, kinds, seeds, data, out) for wanted in recipes]
        slurm.submit([run for row in rows for run in row], args)
        return
    with only_one(out, below=False):
        rows = [open_runs(wanted, kinds, seeds, data, out) for wanted in recipes]
        table_run = TableRun(rows, data, out, args.subset, args.tensorboard)
        title = _title(args, data, recipes)

        def tabulate(*_: object) -> None:
            table_run.tabulate(title, PAPER)

        waiting = len(table_run.waiting())
        if waiting and not args.finished_only:
            device = devices.asked_for(args, waiting)
            _announce(table_run, recipes, device)
            table_run.work(device, after=tabulate)
        tabulate()
    print((out / "table.md").read_text(encoding="utf-8"), end="")
    say(", ".join(str(out / name) for name in PAPER.files))


def _announce(table_run: TableRun, recipes: Sequence[Recipe], device: devices.Device) -> None:
    """Say what will be done, after seeing that it can be."""
    lines = [
        f"  {wanted.row}: {wanted.training.updates:,} updates, "
        f"{wanted.training.arithmetic(device.workers)}"
        for wanted in recipes
    ]
    cells.check_disk(table_run.runs, table_run.data)
    cells_to_do = f"{len(table_run.waiting())} of {len(table_run.runs)} cells to do"
    say("\n".join([f"{cells_to_do}, {device.describe()}", *lines]))


def _title(args: argparse.Namespace, data: DataFolder, recipes: Sequence[Recipe]) -> str:
    """The heading, which says so where it is of a rehearsal."""
    pairs = data.manifest["lines"]["train"]
    named = args.title or f"{'-'.join(data.languages)}, {pairs:,} pairs"
    return f"{named}{rehearsal(recipes)}"


def rehearsal(recipes: Sequence[Recipe]) -> str:
    """What a title must say where the paper's rows do not follow their recipe; the updates."""
    told = f", {_span(sorted(found.training.updates for found in recipes), '{:,}')} updates"
    paper = [(found.training, recipe(found.row).training) for found in recipes if found.row in ROWS]
    shares = sorted(ours.updates / theirs.updates for ours, theirs in paper)
    if shares and shares[0] < 1:
        told += f": a rehearsal at {_span(shares, '{:.3g}', 100)}% of the steps, no result"
    if any(ours.batch_tokens != theirs.batch_tokens for ours, theirs in paper):
        told += ", with batches of another size than the recipe's"
    return told


def _span(numbers: Sequence[float], form: str, unit: int = 1) -> str:
    """The least and the largest, or the one that they are."""
    ends = [form.format(unit * number) for number in (numbers[0], numbers[-1])]
    return " to ".join(dict.fromkeys(ends))

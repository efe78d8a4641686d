"""``fairseq-mhe run-table``: rows x kinds x seeds trained, scored and tabulated, each cell once."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table import TableRun
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.report.translation_table import PAPER
from fairseq_mhe.runs import devices, slurm
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipes import NAMES, Recipe, recipe
from fairseq_mhe.runs.translation import plan_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-table``."""
    add = parser.add_argument
    add("--rows", metavar="ROW,...", help=f"of {', '.join(NAMES)} (default: the paper's)")
    help_ = "or all (default: %(default)s)"
    add("--kinds", type=cells.kinds, default="mha,mhe_mul", metavar="KIND,...", help=help_)
    help_ = "random seeds (default: %(default)s)"
    add("--seeds", type=cells.seeds, default="1", metavar="N,...", help=help_)
    add("--title", metavar="TEXT", help="heading (default: languages and number of pairs)")
    cells.add_arguments(parser)
    slurm.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Do what is not done yet, and print the table."""
    rows = args.rows if args.recipe else args.rows or ",".join(ROWS)
    names = [None] if rows is None else dict.fromkeys(rows.lower().split(","))
    recipes = [cells.chosen_recipe(name, args) for name in names]
    data, out = open_data(args.data), output_folder(args.out)
    cells.check_subset(data, args.subset, args.bleu_tokenizer)
    jobs = [
        job
        for chosen in recipes
        for job in plan_jobs(chosen, args.kinds, args.seeds, data, out)
    ]
    table = TableRun(jobs, data, out, args.subset, args.tensorboard, args.bleu_tokenizer)
    waiting = table.waiting()
    if slurm.asked_for(args):
        say("\n".join(_overview(recipes, args.gpus or args.processes or 1)))
        submitted = {
            job.name: {"command": "run-table", "run": str(job.folder), "config": job.config}
            for job in waiting
        }
        slurm.submit(submitted, len(jobs), args)
        return
    title = _title(args, data, recipes)
    if waiting and not args.finished_only:
        device = devices.asked_for(args, len(waiting))
        where = device.describe(recipes[0].training.precision)
        say(f"{len(waiting)} of {len(jobs)} cells to do, {where}")
        say("\n".join(_overview(recipes, device.workers)))
        table.work(device, after=lambda: table.tabulate(title, PAPER))
    else:
        table.tabulate(title, PAPER)
    print((out / "table.md").read_text(encoding="utf-8"), end="")
    say(", ".join(str(out / name) for name in PAPER.files))


def run_job(job: dict[str, Any]) -> None:
    """One cell of a table, as a SLURM job."""
    args = argparse.Namespace(**job)
    one = Job(Path(args.run), args.config)
    how = (args.subset, args.tensorboard, args.bleu_tokenizer)
    table = TableRun([one], open_data(one.place("data")), one.folder.parent, *how)
    table.work(devices.asked_for(args, 1))


def _overview(recipes: Sequence[Recipe], workers: int) -> list[str]:
    """Updates, batch and precision of each row."""
    lines = []
    for chosen in recipes:
        training = chosen.training
        batch = training.arithmetic(workers)
        lines.append(
            f"  {chosen.row}: {training.updates:,} updates, {batch}, {training.precision}"
        )
    return lines


def _title(args: argparse.Namespace, data: DataFolder, recipes: Sequence[Recipe]) -> str:
    """The heading, which says so where the paper's rows do not follow their recipe."""
    pairs = data.manifest["lines"]["train"]
    name = args.title or f"{'-'.join(data.languages)}, {pairs:,} pairs"
    updates = sorted({chosen.training.updates for chosen in recipes})
    title = f"{name}, {' to '.join(f'{n:,}' for n in updates)} updates"
    for chosen in recipes:
        if chosen.row in ROWS:
            ours, whole = chosen.training, recipe(chosen.row).training
            if ours.updates < whole.updates or ours.batch_tokens != whole.batch_tokens:
                return f"{title}: a rehearsal with fewer updates or other batches, no result"
    return title

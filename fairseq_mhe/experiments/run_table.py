"""``fairseq-mhe run-table``: rows x kinds x seeds trained, translated, scored and tabulated, each cell once."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.prepare.data_folder import Dataset, no_colon, open_dataset
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.table import PAPER, write_table
from fairseq_mhe.runs import devices, pipeline, slurm
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.pipeline import Plan
from fairseq_mhe.runs.processes import check_writable
from fairseq_mhe.runs.recipes import RECIPES, recipe
from fairseq_mhe.runs.run import Run

#: A row's plan and its run folders.
Row = tuple[Plan, list[Run]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-table``."""
    parser.add_argument(
        "--rows",
        default=",".join(ROWS),
        metavar="ROW,...",
        help=f"of {', '.join(RECIPES)} (default: the paper's)",
    )
    parser.add_argument(
        "--kinds", default="mha,mhe_mul", metavar="KIND,...", help="or all (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds", default="1", metavar="N,...", help="random seeds (default: %(default)s)"
    )
    parser.add_argument(
        "--title", metavar="TEXT", help="heading (default: languages and number of pairs)"
    )
    parser.add_argument(
        "--finished-only", action="store_true", help="train nothing: the table of what is finished"
    )
    cells.add_arguments(parser)
    slurm.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Do what is not done yet, and print the table."""
    plans = _plans(args)
    cells.check_tensorboard(args.tensorboard)
    data = open_dataset(args.data)
    out = args.out.resolve()
    no_colon(out)
    check_writable(out)
    if args.slurm:
        workers = args.gpus or args.processes or 1
        for plan in plans:
            print(f"{plan.recipe.row}: {plan.recipe.training.arithmetic(workers)}")
        slurm.submit(_runs(_open(plans, data, out)), args)
        return
    with only_one(out, below=False):
        TableRun(args, plans, data, out).run()


def _plans(args: argparse.Namespace) -> list[Plan]:
    """One for each row.

    Raises:
        UserError: an unknown row or kind, or a seed that is no number.
    """
    kinds = (
        tuple(VARIANTS)
        if args.kinds == "all"
        else tuple(cells.kind(kind) for kind in cells.words(args.kinds))
    )
    seeds = cells.seeds(args.seeds)
    return [
        Plan(cells.chosen_recipe(row, args), kinds, seeds, args.subset)
        for row in cells.words(args.rows)
    ]


def _open(plans: Sequence[Plan], data: Dataset, out: Path) -> list[Row]:
    return [(plan, pipeline.open_runs(plan, data, out)) for plan in plans]


def _runs(rows: Sequence[Row]) -> list[Run]:
    return [run for _, runs in rows for run in runs]


class TableRun:
    """All cells of a table, and the table."""

    def __init__(
        self, args: argparse.Namespace, plans: Sequence[Plan], data: Dataset, out: Path
    ) -> None:
        self.args, self.data, self.out = args, data, out
        self.console = Console(stderr=True)
        self.rows = _open(plans, data, out)
        self.runs = _runs(self.rows)

    def run(self) -> None:
        """Train and score what is not, then print the table."""
        waiting = [run for run in self.runs if not self.scored(run)]
        if waiting and not self.args.finished_only:
            device = devices.asked_for(self.args, len(waiting))
            self.announce(device, len(waiting))
            self.work(device)
        self.tabulate()
        print((self.out / "table.md").read_text(encoding="utf-8"), end="")
        self.say(", ".join(str(self.out / name) for name in PAPER.files))

    def scored(self, run: Run) -> bool:
        """Whether a run is done to the end."""
        return pipeline.scored(run, self.args.subset)

    def say(self, text: str) -> None:
        """A line for people."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def announce(self, device: Device, waiting: int) -> None:
        """Say what will be done, after seeing that it can be."""
        lines = [
            f"  {plan.recipe.row}: {plan.recipe.training.updates:,} updates, "
            f"{plan.recipe.training.arithmetic(device.workers)}"
            for plan, _ in self.rows
        ]
        cells.check_disk(self.runs, self.data)
        self.say(f"{waiting} of {len(self.runs)} cells to do, {device.describe()}")
        for line in lines:
            self.say(line)

    def work(self, device: Device) -> None:
        """Every cell to its scores, a wave after the other, so that there are numbers before all is trained."""
        overview = Board(names=[run.name for run in self.runs], console=self.console)
        with self.locked(), overview:
            self.mark(overview)
            for wave in self.waves(device.slots):
                overview.begin("training")
                pipeline.train(_runs(wave), self.data, device, overview, self.args.tensorboard)
                overview.begin("translating")
                for plan, runs in wave:
                    pipeline.generate(plan, runs, self.data, device.alone(), overview)
                    pipeline.score(plan, runs)
                self.mark(overview)
                self.tabulate()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else is at work in the run folders."""
        with contextlib.ExitStack() as locks:
            for run in self.runs:
                locks.enter_context(only_one(run.folder))
            yield

    def mark(self, overview: Board) -> None:
        """Show which cells are done."""
        for run in self.runs:
            if self.scored(run):
                overview.finish(run.name)

    def waves(self, slots: int) -> Iterator[list[Row]]:
        """Rows, as many together as keep all slots at work."""
        wave: list[Row] = []
        for row in self.rows:
            wave.append(row)
            if sum(len(runs) for _, runs in wave) >= slots:
                yield wave
                wave = []
        if wave:
            yield wave

    def tabulate(self) -> None:
        """Write the table of what is finished, unless it is of these very results already."""
        finished = [run for run in self.runs if self.scored(run)]
        if not finished:
            raise UserError(f"no cell of {self.out} is finished yet: there is nothing to tabulate")
        title = self.title()
        made_from = {
            run.name: run.steps.status()["steps"][f"score {self.args.subset}"]["key"]
            for run in finished
        }
        unfinished = [run.name for run in self.runs if run not in finished]
        Steps(self.out).perform(
            "table",
            {
                "scores": made_from,
                "runs": list(made_from),
                "unfinished": unfinished,
                "title": title,
            },
            [self.out / name for name in PAPER.files],
            lambda: write_table(
                gather((run.folder for run in finished), self.args.subset),
                self.out,
                title,
                PAPER,
                unfinished,
            ),
        )

    def title(self) -> str:
        """The heading, which says so where it is of a rehearsal."""
        pairs = self.data.manifest["lines"]["train"]
        named = self.args.title or f"{'-'.join(self.data.languages)}, {pairs:,} pairs"
        return f"{named}{rehearsal([plan for plan, _ in self.rows])}"


def rehearsal(plans: Sequence[Plan]) -> str:
    """What a title must say where rows of the paper are not trained by their recipe; of other rows, the updates."""
    recipes = [plan.recipe for plan in plans]
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
    return " to ".join(
        dict.fromkeys(form.format(unit * number) for number in (numbers[0], numbers[-1]))
    )

"""``fairseq-mhe quickstart``: MHA against MHE on the embedded corpus, from the text to the table, in one command."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.prepare.corpora.home_assistant import prepare_home_assistant
from fairseq_mhe.prepare.data_folder import Dataset, no_colon, open_dataset
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.report import table
from fairseq_mhe.report.results import gather
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.devices import choose_device
from fairseq_mhe.runs.processes import check_writable
from fairseq_mhe.runs.recipes import QUICKSTART, Recipe
from fairseq_mhe.runs.run import Run

SUBSETS = ("test", "valid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe quickstart``."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/quickstart"),
        help="folder of it all (default: %(default)s)",
    )
    parser.add_argument(
        "--attention",
        type=_kinds,
        default="mha,mhe_mul",
        metavar="KIND,...",
        help=f"kinds to compare, or all (default: %(default)s; there are: {', '.join(VARIANTS)})",
    )
    parser.add_argument(
        "--seed", type=_count, default=1, metavar="N", help="random seed (default: %(default)s)"
    )
    parser.add_argument(
        "--updates",
        type=_count,
        default=QUICKSTART.training.updates,
        metavar="N",
        help="updates of each training (default: %(default)s)",
    )
    parser.add_argument(
        "--limit",
        type=_count,
        metavar="N",
        help="use about N pairs of the corpus only, for a trial",
    )
    parser.add_argument(
        "--subset", choices=SUBSETS, default="test", help="what is scored; valid is for tuning"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(VARIANTS) if text == "all" else tuple(dict.fromkeys(text.split(",")))
    for kind in kinds:
        if kind not in VARIANTS:
            raise argparse.ArgumentTypeError(
                f"unknown attention {kind!r}; choose of: {', '.join(VARIANTS)}, or all"
            )
    return kinds


def run(args: argparse.Namespace) -> None:
    """Do it all, or what is not done yet, and print the table."""
    console = Console(stderr=True)
    out = args.out.resolve()
    no_colon(out)
    check_writable(out)
    with only_one(out):
        Quickstart(args, out, console).run()


class Quickstart:
    """The steps in their order, each announced."""

    def __init__(self, args: argparse.Namespace, out: Path, console: Console) -> None:
        self.args, self.out, self.console = args, out, console
        self.started = time.monotonic()

    def run(self) -> None:
        """All steps."""
        data = self.prepare()
        plan = pipeline.Plan(
            self.recipe(), self.args.attention, (self.args.seed,), self.args.subset
        )
        runs = pipeline.open_runs(plan, data, self.out)
        device = choose_device(len(runs), torch.cuda.is_available() and not self.args.cpu)
        self.announce(
            2,
            f"train {', '.join(plan.kinds)} ({plan.recipe.training.updates} updates each) {device.describe()}",
        )
        with Board("updates", console=self.console) as board:
            pipeline.train(runs, data, device, board)
        alone = choose_device(1, device.gpu)
        self.announce(
            3,
            f"translate {plan.subset} with a beam of {plan.recipe.decoding.beam}, one model after the other",
        )
        with Board("sentences", console=self.console) as board:
            pipeline.generate(plan, runs, data, alone, board)
        self.announce(4, "score and compare")
        pipeline.score(plan, runs)
        self.tabulate(runs, data)

    def announce(self, number: int, what: str) -> None:
        """A line that says what comes now."""
        seconds = round(time.monotonic() - self.started)
        text = f"[{seconds // 60}:{seconds % 60:02d}] step {number} of 4: {what}"
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def recipe(self) -> Recipe:
        """The quickstart's recipe over the number of updates asked for."""
        return replace(QUICKSTART, training=QUICKSTART.training.shortened(self.args.updates))

    def prepare(self) -> Dataset:
        """The embedded corpus as a data folder; a part of it has a folder of its own."""
        limit = self.args.limit
        folder = self.out / ("data" if limit is None else f"data-limit{limit}")
        self.announce(
            1,
            "prepare the embedded English-German corpus"
            + (f", {limit} pairs of it" if limit else ""),
        )
        with shown_progress() as report:
            prepare_home_assistant(folder, limit=limit, report=report)
        return open_dataset(folder)

    def tabulate(self, runs: Sequence[Run], data: Dataset) -> None:
        """Write the table unless it is of these very results already, and print it."""
        title = self.title(data)
        names = [run.name for run in runs]
        made_from = {
            run.name: run.steps.status()["steps"][f"score {self.args.subset}"]["key"]
            for run in runs
        }
        outputs = [self.out / name for name in table.QUICKSTART.files]
        Steps(self.out).perform(
            "table",
            {"runs": names, "scores": made_from, "title": title},
            outputs,
            lambda: table.write_table(
                gather((run.folder for run in runs), self.args.subset), self.out, title
            ),
        )
        table.show_table(self.out, title, Console())
        self.console.print(
            f"{', '.join(str(path) for path in outputs)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    def title(self, data: Dataset) -> str:
        """The table's heading, which says so where it is of a trial."""
        training = self.recipe().training
        whole = (
            self.args.limit is None
            and training == QUICKSTART.training
            and self.args.subset == "test"
        )
        pairs = data.manifest["lines"]["train"]
        trial = (
            ""
            if whole
            else ", a trial and no result"
            if self.args.subset == "test"
            else ", on valid"
        )
        return f"Home Assistant en-de, {pairs:,} pairs, {training.updates:,} updates{trial}"

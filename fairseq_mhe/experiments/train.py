"""``fairseq-mhe train``: one cell of the table, a row with a kind of attention, to its recipe's last update."""

from __future__ import annotations

import argparse

from rich.console import Console

from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.evaluate import evaluate, show
from fairseq_mhe.prepare.data_folder import no_colon, open_dataset
from fairseq_mhe.runs import devices, pipeline
from fairseq_mhe.runs.processes import check_writable
from fairseq_mhe.runs.recipes import RECIPES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe train``."""
    parser.add_argument("row", metavar="ROW", help=f"size of the model: {', '.join(RECIPES)}")
    parser.add_argument(
        "attention", metavar="ATTENTION", help="kind of attention, as fairseq-train's --attention"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)"
    )
    parser.add_argument(
        "--evaluate", action="store_true", help="translate and score the model afterwards"
    )
    cells.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train, or go on training, average the last checkpoints, and name the run folder."""
    console = Console(stderr=True)
    plan = pipeline.Plan(
        cells.chosen_recipe(args.row, args),
        (cells.kind(args.attention),),
        (args.seed,),
        args.subset,
    )
    device = devices.asked_for(args, models=1)
    arithmetic = plan.recipe.training.arithmetic(device.workers)
    cells.check_tensorboard(args.tensorboard)
    data = open_dataset(args.data)
    out = args.out.resolve()
    no_colon(out)
    check_writable(out)
    (run,) = pipeline.open_runs(plan, data, out)
    with only_one(run.folder):
        cells.check_disk([run], data)
        text = f"{run.name}: {plan.recipe.training.updates:,} updates {device.describe()}; {arithmetic}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        with Board("updates", console=console) as board:
            pipeline.train([run], data, device, board, args.tensorboard)
        if args.evaluate:
            evaluate(run, data, args.subset, device.alone(), console)
            show(run, args.subset)
    print(run.folder)

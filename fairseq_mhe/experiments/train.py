"""``fairseq-mhe train``: one cell of the table, trained to its last update."""

import argparse

from fairseq_mhe.common.arguments import seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.evaluate import show
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.runs import devices, pipeline, scoring
from fairseq_mhe.runs.recipes import NAMES
from fairseq_mhe.runs.train import train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe train``."""
    add = parser.add_argument
    told = f"size of the model: {', '.join(NAMES)}; none with --recipe"
    add("row", metavar="ROW", nargs="?", help=told)
    add("attention", metavar="ATTENTION", help="kind of attention, as fairseq-train's --attention")
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--evaluate", action="store_true", help="translate and score the model afterwards")
    cells.add_arguments(parser)
    scoring.add_tokeniser(parser)


def run(args: argparse.Namespace) -> None:
    """Train, or resume, average the last checkpoints, and name the run folder."""
    wanted = cells.chosen_recipe(args.row, args)
    kind = cells.kind(args.attention)
    device = devices.asked_for(args, models=1)
    arithmetic = wanted.training.arithmetic(device.workers)
    if not args.evaluate and (args.bleu_tokenizer or args.subset != "test"):
        option = "--bleu-tokenizer" if args.bleu_tokenizer else "--subset"
        raise UserError(f"{option} is of scoring: give --evaluate too, or leave it out")
    cells.check_tensorboard(args.tensorboard)
    data = open_prepared(args.data)
    if args.evaluate:
        cells.check_subset(data, args.subset, args.bleu_tokenizer)
    out = output_folder(args.out)
    (run,) = pipeline.plan_runs(wanted, [kind], [args.seed], data, out)
    updates = f"{wanted.training.updates:,} updates"
    say(f"{run.name}: {updates} {device.describe(run.training.precision)}; {arithmetic}")
    if args.evaluate:
        how = (args.subset, args.tensorboard, args.bleu_tokenizer)
        TableRun([[run]], data, out, *how).work(device)
        show(run, args.subset)
    else:
        with only_one(run.folder), Board("updates") as board:
            train([run], device, board, args.tensorboard)
            pipeline.make_model(run)
    print(run.folder)

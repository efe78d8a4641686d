"""``fairseq-mhe train``: one cell of the table, trained to its last update."""

import argparse

from fairseq_mhe.common.arguments import seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.evaluate import evaluate, show
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.runs import devices, pipeline, scoring
from fairseq_mhe.runs.recipes import RECIPES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe train``."""
    add = parser.add_argument
    add("row", metavar="ROW", help=f"size of the model: {', '.join(RECIPES)}")
    add("attention", metavar="ATTENTION", help="kind of attention, as fairseq-train's --attention")
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--evaluate", action="store_true", help="translate and score the model afterwards")
    cells.add_arguments(parser)
    scoring.add_tokeniser(parser)


def run(args: argparse.Namespace) -> None:
    """Train, or go on training, average the last checkpoints, and name the run folder."""
    wanted = cells.chosen_recipe(args.row, args)
    kind = cells.kind(args.attention)
    device = devices.asked_for(args, models=1)
    arithmetic = wanted.training.arithmetic(device.workers)
    cells.check_tensorboard(args.tensorboard)
    data = open_prepared(args.data)
    if args.evaluate:
        cells.check_subset(data, args.subset, args.bleu_tokenizer)
    elif args.bleu_tokenizer:
        raise UserError("--bleu-tokenizer is of scoring: give --evaluate too, or leave it out")
    out = output_folder(args.out)
    (run,) = pipeline.plan_runs(wanted, [kind], [args.seed], data, out)
    with only_one(run.folder):
        updates = f"{wanted.training.updates:,} updates"
        where = device.describe(run.training.precision)
        say(f"{run.name}: {updates} {where}; {arithmetic}")
        with Board("updates") as board:
            pipeline.train([run], data, device, board, args.tensorboard)
        if args.evaluate:
            evaluate(run, data, args.subset, device.alone(), args.bleu_tokenizer)
            show(run, args.subset)
    print(run.folder)

"""``fairseq-mhe train``: one cell of the table, trained to its last update."""

import argparse

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.evaluate import show
from fairseq_mhe.experiments.table import TableRun
from fairseq_mhe.experiments.work import work
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.runs import devices, translation
from fairseq_mhe.runs.recipes import NAMES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe train``."""
    add = parser.add_argument
    help_ = f"size of the model: {', '.join(NAMES)}; none with --recipe"
    add("row", metavar="ROW", nargs="?", help=help_)
    help_ = "kind of attention, as fairseq-train's --attention"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--evaluate", action="store_true", help="translate and score the model afterwards")
    cells.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train, or resume, average the last checkpoints, and name the run folder."""
    if not args.evaluate and (args.bleu_tokenizer or args.subset != "test"):
        option = "--bleu-tokenizer" if args.bleu_tokenizer else "--subset"
        raise UserError(f"{option} is of scoring: give --evaluate too, or leave it out")
    recipe, device = cells.chosen_recipe(args.row, args), devices.asked_for(args, models=1)
    training = recipe.training
    batch = training.arithmetic(device.workers)
    data = open_data(args.data)
    if args.evaluate:
        cells.check_subset(data, args.subset, args.bleu_tokenizer)
    out = output_folder(args.out)
    jobs = translation.plan_jobs(recipe, [args.attention], [args.seed], data, out)
    where = device.describe(training.precision)
    say(f"{jobs[0].name}: {training.updates:,} updates {where}; {batch}")
    if args.evaluate:
        how = (args.subset, args.tensorboard, args.bleu_tokenizer)
        TableRun(jobs, data, out, *how).work(device)
        show(jobs[0], args.subset)
    else:
        work(
            jobs,
            device,
            scored=lambda job: job.model.exists(),
            score=lambda job, _: translation.make_model(job),
            tensorboard=args.tensorboard,
        )
    print(jobs[0].folder)

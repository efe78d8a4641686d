"""A task of GLUE, SuperGLUE or SQuAD in the subwords of a language model's text.

Wang et al. 2018 and 2019, Rajpurkar et al. 2016 and 2018. The first argument is the suite.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from fairseq_mhe.common.arguments import add_options, at_least, from_options, positive
from fairseq_mhe.prepare.corpora.known import Downloads, run_script
from fairseq_mhe.prepare.corpora.task_downloads import obtain_task
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS


def add_arguments(parser: argparse.ArgumentParser, suite: str) -> None:
    """The script's options."""
    names = [task.name for task in TASKS.values() if task.suite == suite]
    add = parser.add_argument
    add("task", choices=names, metavar="TASK", help=", ".join(names))
    help = (
        "its official files, unpacked, as CoLA/train.tsv, train.tsv or cola.train.tsv.gz; nothing "
        "is downloaded"
    )
    add("--folder", type=Path, help=help)
    add("--text", type=Path, required=True, metavar="DATA", help="the language model's data folder")
    add("--out", type=Path, metavar="DIR", help="folder to make (default: runs/TASK-data)")
    add(
        "--block",
        type=at_least(8),
        default=384 if suite == "squad" else 512,
        metavar="N",
        help="longest example in subwords: at most the model's positions (default: %(default)s)",
    )
    add_options(parser, Downloads, Downloads)
    if suite == "squad":
        help = "subwords between two windows over a passage (default: a third of --block)"
        add("--stride", type=positive, metavar="N", help=help)


def run(args: argparse.Namespace) -> None:
    """Prepare the task."""
    out = args.out or Path(f"runs/{args.task}-data")
    task, folder = TASKS[args.task], args.folder
    if folder is None:
        with shown_progress() as report:
            folder = obtain_task(task, from_options(Downloads, args), out, report)
    stride = getattr(args, "stride", None)
    print(prepare_task(task, folder, args.text, out, args.block, stride))


def run_suite(suite: str) -> None:
    """The script of a suite."""
    run_script(f"{suite}.sh", __doc__, partial(add_arguments, suite=suite), run)


if __name__ == "__main__":
    run_suite(sys.argv.pop(1))

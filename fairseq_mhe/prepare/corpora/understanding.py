"""The scripts glue.sh and superglue.sh: a task in the subwords of a language model's text."""

import argparse
from functools import partial
from pathlib import Path

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.prepare.corpora.known import run_script
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS


def add_arguments(parser: argparse.ArgumentParser, suite: str) -> None:
    """The script's options."""
    names = [task.name for task in TASKS.values() if task.suite == suite]
    add = parser.add_argument
    add("task", choices=names, metavar="TASK", help=", ".join(names))
    told = "its official files, unpacked: FOLDER/CoLA/train.tsv, or FOLDER/cola.train.tsv.gz"
    add("--folder", type=Path, required=True, help=told)
    add("--text", type=Path, required=True, metavar="DATA", help="the language model's data folder")
    add("--out", type=Path, metavar="DIR", help="folder to make (default: runs/TASK-data)")
    told = "longest example in subwords: the model's positions (default: %(default)s)"
    add("--block", type=positive, default=512, metavar="N", help=told)


def run(args: argparse.Namespace) -> None:
    """Prepare the task."""
    out = args.out or Path(f"runs/{args.task}-data")
    print(prepare_task(TASKS[args.task], args.folder, args.text, out, args.block))


def run_suite(suite: str, description: str | None) -> None:
    """The script of GLUE or of SuperGLUE."""
    run_script(f"{suite}.sh", description, partial(add_arguments, suite=suite), run)

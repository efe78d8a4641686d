"""The scripts of GLUE, SuperGLUE and SQuAD: a task in the subwords of a language model's text."""

import argparse
from functools import partial
from pathlib import Path

from fairseq_mhe.common.arguments import add_options, from_options, positive
from fairseq_mhe.prepare.corpora.known import Downloads, run_script
from fairseq_mhe.prepare.corpora.task_downloads import obtain_task
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS

#: SQuAD's windows as they commonly are: 384, with a stride of 128.
_BLOCK = {"squad": 384}
_EXAMPLE = {
    "glue": "CoLA/train.tsv, or FOLDER/cola.train.tsv.gz",
    "superglue": "CB/train.jsonl, or FOLDER/cb.train.jsonl.gz",
    "squad": "train-v1.1.json, or FOLDER/squad1.train.json.gz",
}


def add_arguments(parser: argparse.ArgumentParser, suite: str) -> None:
    """The script's options."""
    names = [task.name for task in TASKS.values() if task.suite == suite]
    add = parser.add_argument
    add("task", choices=names, metavar="TASK", help=", ".join(names))
    told = f"its official files, unpacked: FOLDER/{_EXAMPLE[suite]}"
    add("--folder", type=Path, help=f"{told}; nothing is downloaded")
    add("--text", type=Path, required=True, metavar="DATA", help="the language model's data folder")
    add("--out", type=Path, metavar="DIR", help="folder to make (default: runs/TASK-data)")
    told = "longest example in subwords: at most the model's positions (default: %(default)s)"
    add("--block", type=positive, default=_BLOCK.get(suite, 512), metavar="N", help=told)
    add_options(parser, Downloads, Downloads)
    if suite == "squad":
        told = "subwords between two windows over a passage (default: a third of --block)"
        add("--stride", type=positive, metavar="N", help=told)


def run(args: argparse.Namespace) -> None:
    """Prepare the task."""
    out = args.out or Path(f"runs/{args.task}-data")
    task, stride = TASKS[args.task], getattr(args, "stride", None)
    folder = args.folder
    if folder is None:
        with shown_progress() as report:
            folder = obtain_task(task, from_options(Downloads, args), out, report)
    print(prepare_task(task, folder, args.text, out, args.block, stride))


def run_suite(suite: str, description: str | None) -> None:
    """The script of GLUE, of SuperGLUE or of SQuAD."""
    run_script(f"{suite}.sh", description, partial(add_arguments, suite=suite), run)

"""A task of GLUE, SuperGLUE or SQuAD in the subwords of a language model's text."""

import argparse
import shutil
from pathlib import Path

from fairseq_mhe.common.arguments import at_least
from fairseq_mhe.prepare.config import add_options
from fairseq_mhe.prepare.corpora.known import Downloads
from fairseq_mhe.prepare.download import RemoteFile, extract
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS, Task
from fairseq_mhe.prepare.text import read_lines, write_lines


def obtain_task(task: Task, downloads: Downloads) -> Path:
    """Download a task's official files; returns their folder, raises UserError as `unpack`."""

    def unpack(paths: list[Path], work: Path) -> None:
        if task.name == "mrpc":  # the second file names the pairs of the first that are dev
            (header, *rows), pairs = map(list, map(read_lines, paths))
            dev = [row for row in rows if "\t".join(row.split("\t")[1:3]) in pairs]
            train = [row for row in rows if row not in dev]
            write_lines(work / "train.tsv", [header, *train])
            write_lines(work / "dev.tsv", [header, *dev])
        elif task.suite == "squad":
            for path in paths:
                shutil.copy(path, work)
        else:
            names = [
                f"{task.folder}/{name}{task.suffix}" for name in ("train", *task.scored)
            ]
            extract(paths[0], names, work)

    downloads.unpack([RemoteFile(**file) for file in task.files], unpack)
    return downloads.original


def add_arguments(parser: argparse.ArgumentParser, suite: str) -> None:
    """The script's options."""
    add = parser.add_argument
    names = [task.name for task in TASKS.values() if task.suite == suite]
    add("task", choices=names, metavar="TASK", help=", ".join(names))
    help = "unpacked official files, as CoLA/train.tsv or train.tsv; nothing is downloaded"
    add("--folder", type=Path, help=help)
    help = "the language model's data folder"
    add("--text", type=Path, required=True, metavar="DATA", help=help)
    add("--out", type=Path, metavar="DIR", help="new data folder (default: runs/TASK-data)")
    help = "subwords of an example, at most the model's positions (default: %(default)s)"
    block = 384 if suite == "squad" else 512
    add("--block", type=at_least(8), default=block, metavar="N", help=help)
    add_options(parser, Downloads)


def run(args: argparse.Namespace) -> Path:
    """The data folder of the task."""
    task = TASKS[args.task]
    out = args.out or Path(f"runs/{task.name}-data")
    folder = args.folder or obtain_task(task, Downloads(out=out, mirror=args.mirror))
    return prepare_task(task, folder, args.text, out, args.block)

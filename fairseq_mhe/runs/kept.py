"""``fairseq-mhe keep``: finished runs without their checkpoints, small enough to be published."""

import argparse
import shutil
from pathlib import Path

from fairseq_mhe.common.files import new_folder, output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.runs.job import read_job

#: What is left out: checkpoints, and hidden files such as locks.
_LEFT_OUT = shutil.ignore_patterns("*.pt", "checkpoints", ".*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe keep``."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="finished run folders")
    help_ = "folder that gets a copy of each run without its checkpoints"
    add("--out", type=Path, required=True, metavar="FOLDER", help=help_)


def run(args: argparse.Namespace) -> None:
    """Copy the runs, and none of them where one has no scores."""
    for folder in args.runs:
        job = read_job(folder)
        if not job.scores.exists() and not any(folder.glob("*/scores.json")):
            raise job.unfinished("scores")
    out = output_folder(args.out)
    for folder in args.runs:
        target = out / folder.resolve().name
        with new_folder(target) as copy:
            shutil.copytree(folder, copy, ignore=_LEFT_OUT)
        say(str(target))

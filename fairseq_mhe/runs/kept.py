"""``fairseq-mhe keep``: finished runs without their checkpoints, small enough to be published."""

import argparse
import shutil
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import new_folder, output_folder
from fairseq_mhe.common.progress import say

#: What is left out: checkpoints, and hidden files such as locks.
_LEFT_OUT = shutil.ignore_patterns("*.pt", "checkpoints", ".*")


def check_scored(run: Path) -> None:
    """See that a run folder, of translation or of a language model, has scores.

    Raises:
        UserError: it is no run folder, or is not finished.
    """
    if not (run / "config.json").is_file():
        raise UserError(f"{run} is no run folder: it has no config.json")
    if not any(run.glob("scores.json")) and not any(run.glob("*/scores.json")):
        raise UserError(
            f"{run} is not finished: it has no scores; give the command that made it again"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe keep``."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="finished run folders")
    told = "folder that gets a copy of each run without its checkpoints"
    add("--out", type=Path, required=True, metavar="FOLDER", help=told)


def run(args: argparse.Namespace) -> None:
    """Copy the runs, and none of them where one is not finished."""
    for folder in args.runs:
        check_scored(folder)
    out = output_folder(args.out)
    for folder in args.runs:
        target = out / folder.resolve().name
        with new_folder(target) as copy:
            shutil.copytree(folder, copy, ignore=_LEFT_OUT)
        say(str(target))

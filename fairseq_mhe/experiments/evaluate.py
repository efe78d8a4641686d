"""``fairseq-mhe evaluate``: a data set translated and scored with a trained job's model."""

import argparse
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import only_one, read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.experiments import cells
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.runs import comet, devices, scoring, translation
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job, read_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe evaluate``."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the folder of a trained run")
    add("--subset", default="test", help="what is translated and scored (default: %(default)s)")
    help_ = "its data folder, where that has been moved since"
    add("--data", type=Path, metavar="DATA", help=help_)
    help_ = f"score with COMET too ({comet.MODEL})"
    add("--comet", nargs="?", const=comet.MODEL, metavar="MODEL", help=help_)
    scoring.add_tokeniser(parser)
    add("--cpu", action="store_true", help="do not use a GPU")


def run(args: argparse.Namespace) -> None:
    """Print the scores."""
    job = read_job(args.run.resolve())
    data = open_data(args.data or job.place("data"))
    if args.comet:
        comet.check_installed()
    device = devices.single(args.cpu)
    with only_one(job.folder):
        evaluate(job, data, args.subset, device, args.bleu_tokenizer)
        if args.comet:
            comet.add_score(job, args.subset, args.comet, device.gpu)
    show(job, args.subset)


def show(job: Job, subset: str) -> None:
    """Print the scores that a job has."""
    print("\n".join(scoring.described(read_json(job.subset(subset) / "scores.json"))))
    path = job.subset(subset) / comet.FILE
    if path.exists():
        by_comet = read_json(path)
        print(f"COMET {by_comet['score']:.4f}  ({by_comet['model']})")


def evaluate(
    job: Job, data: DataFolder, subset: str, device: Device, tokenise: str | None = None
) -> None:
    """Translate and score, unless that is done.

    Raises:
        UserError: the job is not trained to its end, or was trained on other data.
    """
    if data.fingerprint != job.settings["data"]["fingerprint"]:
        raise UserError(
            f"{data.folder} is not the data that {job.folder} was trained on: give the right --data"
        )
    cells.check_subset(data, subset, tokenise)
    with Board("sentences") as board:
        translation.translate(job, data, subset, device, board)
    translation.score(job, subset, tokenise)

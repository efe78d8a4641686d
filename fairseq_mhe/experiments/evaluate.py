"""``fairseq-mhe evaluate``: a data set translated and scored with a trained run's model."""

import argparse
import json
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.runs import comet, devices, pipeline, scoring
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job, read_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe evaluate``."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the folder of a trained run")
    add("--subset", default="test", help="what is translated and scored (default: %(default)s)")
    told = "its data folder, where that has been moved since"
    add("--data", type=Path, metavar="DATA", help=told)
    told = f"score with COMET too ({comet.MODEL})"
    add("--comet", nargs="?", const=comet.MODEL, metavar="MODEL", help=told)
    scoring.add_tokeniser(parser)
    add("--cpu", action="store_true", help="do not use a GPU")
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print the scores."""
    found = read_job(args.run.resolve())
    data = open_prepared(args.data or found.place("data"))
    if args.comet:
        comet.check_installed()
    device = devices.single(args.cpu)
    with only_one(found.folder):
        evaluate(found, data, args.subset, device, args.bleu_tokenizer)
        if args.comet:
            comet.add_score(found, args.subset, args.comet, device.gpu)
    show(found, args.subset, args.json)


def show(run: Job, subset: str, as_json: bool = False) -> None:
    """Print the scores that a run has."""
    scores, with_comet = run.subset(subset) / "scores.json", None
    if (run.subset(subset) / comet.FILE).exists():
        with_comet = read_json(run.subset(subset) / comet.FILE)
    if as_json:
        print(json.dumps({**read_json(scores), "comet": with_comet}, indent=2))
        return
    print("\n".join(scoring.described(scoring.read_scores(scores))))
    if with_comet:
        print(f"COMET {with_comet['score']:.4f}  ({with_comet['model']})")


def evaluate(
    run: Job, data: DataFolder, subset: str, device: Device, tokenise: str | None = None
) -> None:
    """Translate and score, unless that is done.

    Raises:
        UserError: the run is not trained to its end, or the data are not what it was trained on.
    """
    check_data(run, data)
    cells.check_subset(data, subset, tokenise)
    if "average" not in run.steps.status()["steps"] or not run.model.is_file():
        raise run.unfinished(f"{run.model.name} of all {run.training.updates:,} updates")
    with Board("sentences") as board:
        pipeline.translate(run, data, subset, device, board)
    pipeline.score(run, subset, tokenise)


def check_data(run: Job, data: DataFolder) -> None:
    """See that the data folder is the run's.

    Raises:
        UserError: it is another one.
    """
    if data.fingerprint != run.settings["data"]["fingerprint"]:
        raise UserError(
            f"{data.folder} is not the data that {run.folder} was trained on: give the right --data"
        )

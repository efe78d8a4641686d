"""``fairseq-mhe evaluate``: translate a data set with a trained run's averaged model and score it, each once."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.prepare.data_folder import Dataset, open_dataset
from fairseq_mhe.runs import comet, devices, pipeline, scoring
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.recipes import recipe
from fairseq_mhe.runs.run import Run, read_run
from fairseq_mhe.runs.training import training_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe evaluate``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a trained run")
    parser.add_argument(
        "--subset", default="test", help="what is translated and scored (default: %(default)s)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DATA", help="its data folder, where that has been moved since"
    )
    parser.add_argument(
        "--comet",
        nargs="?",
        const=comet.MODEL,
        metavar="MODEL",
        help=f"score with COMET too ({comet.MODEL})",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print the scores."""
    found = read_run(args.run.resolve())
    data = open_dataset(args.data or Path(found.config["surroundings"]["data"]))
    if args.comet:
        comet.check_installed()
    device = devices.asked_for(
        argparse.Namespace(gpus=None, processes=None, cpu=args.cpu), models=1
    ).alone()
    with only_one(found.folder):
        evaluate(found, data, args.subset, device, Console(stderr=True))
        if args.comet:
            comet.add_score(found, args.subset, args.comet)
    show(found, args.subset, args.json)


def show(run: Run, subset: str, as_json: bool = False) -> None:
    """Print the scores that a run has."""
    folder = run.subset(subset)
    with_comet = read_json(folder / comet.FILE) if (folder / comet.FILE).exists() else None
    if as_json:
        print(json.dumps({**read_json(folder / "scores.json"), "comet": with_comet}, indent=2))
        return
    print("\n".join(scoring.described(scoring.read_scores(folder / "scores.json"))))
    if with_comet:
        print(f"COMET {with_comet['score']:.4f}  ({with_comet['model']})")


def evaluate(run: Run, data: Dataset, subset: str, device: Device, console: Console) -> None:
    """Translate and score, unless that is done.

    Raises:
        UserError: the run is not trained to its end, or the data are not what it was trained on.
    """
    if data.fingerprint != run.settings["data"]["fingerprint"]:
        raise UserError(
            f"{data.folder} is not the data that {run.folder} was trained on: give the right --data"
        )
    if not data.text(subset, 0).is_file():
        there = sorted(
            path.stem for path in data.text(subset, 0).parent.glob(f"*.{data.languages[0]}")
        )
        raise UserError(f"{data.folder} has no {subset!r}: give a --subset of {', '.join(there)}")
    if "average" not in run.steps.status()["steps"] or not run.model.is_file():
        raise UserError(
            f"{run.folder} is not trained to its end ({training_of(run).updates:,} updates): run the command that "
            "trained it again, which goes on from where it was"
        )
    plan = pipeline.Plan(recipe(run.row), (run.kind,), (run.seed,), subset)
    with Board("sentences", console=console) as board:
        pipeline.generate(plan, [run], data, device, board)
    pipeline.score(plan, [run])

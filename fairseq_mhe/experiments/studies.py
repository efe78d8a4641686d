"""What studies share: their options, runs that start from another model's weights, and a report of it all."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from shlex import join
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    atomic_path,
    check_writable,
    output_folder,
    read_json,
    sha256,
    write_json,
    write_text,
)
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import Steps
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.compare import quiet_fairseq
from fairseq_mhe.convert.measured import open_material
from fairseq_mhe.experiments.evaluate import evaluate
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.report.plots import DPI
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.devices import Device, choose_device
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.run import PLACES, Run, open_run, read_run, settings_of

#: What a converted checkpoint is called in a study's folder, and the report of its conversion.
START, CONVERSION = "start.pt", "conversion.json"


@dataclass(frozen=True)
class Study:
    """Where a study works, on which data, and with what.

    ``command``: as typed, for the report.
    """

    out: Path
    data: DataFolder
    subset: str
    gpu: bool
    console: Console
    command: str

    def say(self, text: str) -> None:
        """A line for people."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def model_of(self, name: str, like: Run, kind: str, training: Training, **more: Any) -> Run:
        """The run folder ``name`` for a model of the row, seed and data of ``like``.

        Args:
            name: of the folder.
            like: the run that it is compared with.
            kind: of attention, at all places.
            training: the recipe; 0 updates for a model that is not trained at all.
            more: ``options``, further words for fairseq-train; ``start``, a checkpoint whose
            weights it begins with.

        Raises:
            UserError: the folder is of other settings.
        """
        attention, data = dict.fromkeys(PLACES, kind), like.settings["data"]
        settings = settings_of(
            like.row, attention, like.seed, training.settings(), data, more.get("options", ())
        )
        surroundings = {"data": str(self.data.folder)}
        if (start := more.get("start")) is not None:
            settings["start"] = sha256(start)
            surroundings["start"] = str(start.resolve())
        return open_run(self.out / name, settings, surroundings)

    def train(self, runs: Sequence[Run]) -> None:
        """Train what is to be trained; of a run of 0 updates the model is its start."""
        untrained = [run for run in runs if not run.training.updates]
        for run in untrained:
            inputs = {"start": run.settings["start"]}
            start = Path(run.config["surroundings"]["start"])
            run.steps.perform("average", inputs, [run.model], partial(_copy, start, run.model))
            pipeline.count(run, inputs)
        trained = [run for run in runs if run.training.updates]
        if trained:
            device = choose_device(len(trained), self.gpu)
            updates = sorted({run.training.updates for run in trained})
            words = " or ".join(f"{number:,}" for number in updates)
            self.say(f"training {len(trained)} models for {words} updates {device.describe()}")
            with Board("updates", console=self.console) as board:
                pipeline.train(trained, self.data, device, board)

    def score(self, runs: Sequence[Run]) -> None:
        """Translate and score."""
        for run in runs:
            evaluate(run, self.data, self.subset, self.device())

    def device(self) -> Device:
        """One process that has the machine to itself."""
        return choose_device(1, self.gpu)

    def bleu(self, run: Run) -> float:
        """A scored run's."""
        return float(read_json(run.subset(self.subset) / "scores.json")["bleu"]["score"])

    def signature(self, run: Run) -> str:
        """What its BLEU means."""
        return str(read_json(run.subset(self.subset) / "scores.json")["bleu"]["signature"])

    def scored(self, run: Run) -> bool:
        """Whether it has been."""
        return (run.subset(self.subset) / "scores.json").is_file()


def add_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Options that every study has."""
    parser.add_argument(
        "--out", type=Path, default=Path("runs") / name, help="its folder (default: %(default)s)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DATA", help="the runs' data folder, where that has been moved"
    )
    parser.add_argument(
        "--subset", default="test", help="what is translated and scored (default: %(default)s)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def open_study(args: argparse.Namespace, run: Run, console: Console) -> Study:
    """The study that ``add_arguments``'s options describe, on the data of ``run``.

    Raises:
        UserError: the data or the folder cannot be used.
    """
    data = open_prepared(args.data or Path(run.config["surroundings"]["data"]))
    if data.fingerprint != run.settings["data"]["fingerprint"]:
        raise UserError(
            f"{data.folder} is not the data that {run.folder} was trained on: give the right --data"
        )
    out = output_folder(args.out)
    gpu = torch.cuda.is_available() and not args.cpu
    return Study(out, data, args.subset, gpu, console, join(["fairseq-mhe", *args.typed]))


def finished_run(folder: Path, kind: str | None = None) -> Run:
    """A run that was trained to its end.

    Raises:
        UserError: it was not, or it is of another kind.
    """
    run = read_run(folder)
    if not run.model.is_file():
        raise UserError(
            f"{folder} is not finished: it has no {run.model.name}; run the command that trains it again"
        )
    if kind is not None and run.kind != kind:
        raise UserError(f"{folder} is of {run.kind}, and a run of {kind} is needed")
    return run


def share(training: Training, fraction: float, lr: float | None) -> Training:
    """The recipe over a share of its updates, for fine-tuning, with two checkpoints more than it averages."""
    shorter = training.shortened(max(1, round(fraction * training.updates)))
    checkpoints = max(1, min(shorter.updates, training.average + 2))
    return replace(shorter, checkpoints=checkpoints, lr=training.lr if lr is None else lr)


def perform_conversion(
    study: Study,
    run: Run,
    folder: Path,
    settings: Mapping[str, Any],
    sentences: int,
    convert: Callable[..., Any],
) -> Path:
    """Convert a run's model once; ``convert(source, output, material)`` returns its report as JSON values.

    Returns:
        The converted checkpoint, in ``folder`` beside the report.
    """
    start = folder / START
    check_writable(folder)

    def action() -> None:
        with quiet_fairseq():
            source = open_source(run.model)
            material = open_material(source, study.data.folder, sentences)
            begun = time.monotonic()
            report = convert(source, start, material)
        write_json(folder / CONVERSION, {**report, "seconds": round(time.monotonic() - begun, 1)})

    inputs = {**settings, "sentences": sentences, "model": sha256(run.model)}
    Steps(folder).perform("convert", inputs, [start, folder / CONVERSION], action)
    return start


def write_report(
    study: Study,
    name: str,
    title: str,
    results: Mapping[str, Any],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
    notes: Sequence[str],
    draw: Callable[[Figure], None],
    show: bool = True,
) -> None:
    """Write NAME.json, NAME.md and NAME.png into the study's folder, and print the Markdown.

    Args:
        tables: heading, column titles and rows of each.
        draw: draws the picture.
        show: print it; not where more is to come.
    """
    made_on = {"machine": machine("cuda" if study.gpu else "cpu"), "software": software()}
    with contextlib.suppress(
        metadata.PackageNotFoundError
    ):  # what converts needs it, other studies do not
        made_on["software"]["tensorly"] = metadata.version("tensorly")
    facts = {"date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "command": study.command}
    write_json(study.out / f"{name}.json", {**facts, **made_on, **results})
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    with atomic_path(study.out / f"{name}.png") as temporary:
        figure.savefig(temporary, dpi=DPI, format="png")
    lines = {**facts, "command": f"`{study.command}`", **made_on["machine"], **made_on["software"]}
    parts = [f"# {title}"]
    for heading, columns, rows in tables:
        parts += [f"## {heading}", align(columns, rows)]
    parts += [
        "\n".join(f"- {note}" for note in notes),
        "\n".join(f"- {key}: {value}" for key, value in lines.items()),
    ]
    text = "\n\n".join(parts) + "\n"
    write_text(study.out / f"{name}.md", text)
    if show:
        print(text, end="")


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)

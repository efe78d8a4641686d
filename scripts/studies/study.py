"""What studies share: options, runs that start from another model's weights, and the report."""

import argparse
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Any

import torch
from matplotlib.figure import Figure

from fairseq_mhe.common.arguments import number, positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    atomic_path,
    output_folder,
    read_json,
    sha256,
    write_json,
    write_text,
)
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.common.system import installed, machine, software
from fairseq_mhe.common.tables import align
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.evaluate import check_data, evaluate
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.report.plots import DPI
from fairseq_mhe.report.results import Cell, check_scored_alike, lowest_loss
from fairseq_mhe.report.table import deviation
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.devices import choose_device
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.run import Run, open_run, read_run, settings_of
from fairseq_mhe.runs.scoring import bleu_tokeniser
from studies.conversions import conversion_report, convert_once

PROGRAM = "bash scripts/study.sh"


@dataclass(frozen=True)
class Study:
    """Where a study works, on which data, and with what; ``typed``: the words after `PROGRAM`."""

    out: Path
    data: DataFolder
    subset: str
    gpu: bool
    typed: Sequence[str]

    def model_of(
        self,
        name: str,
        like: Run,
        kind: str,
        training: Training,
        options: Sequence[str] = (),
        start: Path | None = None,
    ) -> Run:
        """The run folder ``name`` for a model of the row, seed, data and options of ``like``.

        ``training`` has 0 updates for a model that is not trained at all; ``options`` are words for
        fairseq-train beside its own; the model begins with the weights of the checkpoint ``start``.

        Raises:
            UserError: the folder is of other settings.
        """
        attention, data = dict.fromkeys(PLACES, kind), like.settings["data"]
        words = [*like.settings.get("options", ()), *options]
        settings = settings_of(like.row, attention, like.seed, training.settings(), data, words)
        surroundings = {"data": str(self.data.folder)}
        if start is not None:
            settings["start"] = sha256(start)
            surroundings["start"] = str(start.resolve())
        return open_run(self.out / name, settings, surroundings)

    def work(self, runs: Sequence[Run]) -> None:
        """Train, translate and score the study's own runs; of 0 updates the model is its start."""
        untrained = [run for run in runs if not run.training.updates]
        for run in untrained:
            _take_start(run)
        if trained := [run for run in runs if run.training.updates]:
            device = choose_device(len(trained), self.gpu)
            if waiting := [run for run in trained if not pipeline.scored(run, self.subset)]:
                updates = sorted({run.training.updates for run in waiting})
                words = " or ".join(f"{number:,}" for number in updates)
                say(f"training {len(waiting)} models for {words} updates {device.describe()}")
            TableRun([trained], self.data, self.out, self.subset).work(device)
        self.score(untrained)

    def score(self, runs: Sequence[Run]) -> None:
        """Translate and score with the trained runs that have no scores."""
        for run in runs:
            if not pipeline.scored(run, self.subset):
                with only_one(run.folder):
                    evaluate(run, self.data, self.subset, choose_device(1, self.gpu))

    def check_alike(self, runs: Sequence[Run]) -> None:
        """See that BLEU is the same in all runs: in those, too, that have no scores yet.

        Raises:
            UserError: it is not, or will not be.
        """
        scored = [run for run in runs if pipeline.scored(run, self.subset)]
        if not scored:
            return
        check_scored_alike([self.cell([run]) for run in scored])
        found, usual = self.cell(scored).tokenisers()[0], bleu_tokeniser(self.data.languages[1])
        if len(scored) < len(runs) and found != usual:
            raise UserError(
                f"{scored[0].folder} was scored with the tokeniser {found}, and the study's runs "
                f"will be with {usual}: score it so, too (evaluate --bleu-tokenizer {usual})"
            )

    def bleu(self, run: Run) -> float:
        """A scored run's BLEU."""
        return self.cell([run]).bleus()[0]

    def signature(self, run: Run) -> str:
        """What its BLEU means."""
        return str(self.cell([run]).values("scores")[0]["bleu"]["signature"])

    def cell(self, runs: Sequence[Run]) -> Cell:
        """Scored runs that differ in their seeds."""
        return Cell(runs[0].row, runs[0].kind, tuple(runs), self.subset)

    def over_seeds(self, runs: Sequence[Run]) -> dict[str, Any]:
        """The BLEU of runs that differ in their seeds, one by one and together."""
        bleus = self.cell(runs).bleus()
        return {
            "seeds": [run.seed for run in runs],
            "bleus": bleus,
            "bleu": round(statistics.mean(bleus), 4),
            "deviation": deviation(bleus),
        }

    def losses(self, runs: Sequence[Run]) -> dict[str, Any]:
        """Their lowest validation losses, in the same way."""
        losses = [lowest_loss(read_json(run.metrics)) for run in runs]
        return {
            "losses": losses,
            "loss": round(statistics.mean(losses), 4),
            "loss_deviation": deviation(losses),
        }

    def convert(
        self, run: Run, name: str, inputs: Mapping[str, Any], action: Callable[..., dict[str, Any]]
    ) -> Path:
        """As `convert_once`, of a run's model in the study's folder ``name``; the checkpoint."""
        folder = self.out / name
        start = folder / "start.pt"
        convert_once(folder, start, run.model, self.data.folder, inputs, action)
        return start

    def conversion(self, name: str) -> dict[str, Any] | None:
        """The report of the conversion into the folder ``name``, if there was one."""
        return conversion_report(self.out / name)


def _take_start(run: Run) -> None:
    """Make the start of a run that is not trained its model, and count it."""

    def copy() -> None:
        with atomic_path(run.model) as temporary:
            shutil.copyfile(run.place("start"), temporary)

    inputs = {"start": run.settings["start"]}
    run.steps.perform("average", inputs, [run.model], copy)
    pipeline.count(run, inputs)


def add_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Options that every study of finished runs has; ``name``: of its folder in runs/."""
    add, out = parser.add_argument, Path("runs") / name
    add("--out", type=Path, default=out, help="its folder (default: %(default)s)")
    told = "the runs' data folder, where that has been moved"
    add("--data", type=Path, metavar="DATA", help=told)
    add("--subset", default="test", help="what is translated and scored (default: %(default)s)")
    add("--cpu", action="store_true", help="do not use a GPU")


def _share(text: str) -> float:
    share = number(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of more than 0 and at most 1")
    return share


def _rate(text: str) -> float:
    rate = number(text)
    if rate <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no learning rate of more than 0")
    return rate


def add_tuning_arguments(parser: argparse.ArgumentParser, fraction: float) -> None:
    """Options of studies that convert models and train them further."""
    add = parser.add_argument
    told = "share of the updates for further training (default: %(default)s)"
    add("--fraction", type=_share, default=fraction, metavar="F", help=told)
    told = "peak learning rate of further training (default: the run's)"
    add("--lr", type=_rate, metavar="LR", help=told)
    told = "pairs that a conversion is fitted to and judged on (default: %(default)s)"
    add("--sentences", type=positive, default=1000, metavar="N", help=told)


def open_study(args: argparse.Namespace, *runs: Run) -> Study:
    """The study that `add_arguments`'s options describe, on the data of ``runs``.

    Raises:
        UserError: they are not all of the same, or the data cannot be read.
    """
    data = open_prepared(args.data or runs[0].place("data"))
    for run in runs:
        check_data(run, data)
    cells.check_subset(data, args.subset)
    gpu = torch.cuda.is_available() and not args.cpu
    return Study(output_folder(args.out), data, args.subset, gpu, args.typed)


def finished_run(folder: Path, kind: str | None = None) -> Run:
    """A run that was trained to its end.

    Raises:
        UserError: it was not, or it is of another kind.
    """
    run = read_run(folder)
    if not run.model.is_file():
        raise run.unfinished(run.model.name)
    if kind is not None and run.kind != kind:
        raise UserError(f"{folder} is of {run.kind}, and a run of {kind} is needed")
    return run


def share(training: Training, fraction: float, lr: float | None) -> Training:
    """The recipe over a share of its updates, with two checkpoints more than it averages.

    All of them are made: with patience the warm-up would stay as long, and never end.
    """
    shorter = replace(training, patience=0).shortened(max(1, round(fraction * training.updates)))
    checkpoints = max(1, min(shorter.updates, training.average + 2))
    return replace(shorter, checkpoints=checkpoints, lr=training.lr if lr is None else lr)


def or_dash(value: float | None, form: str) -> str:
    """A number as it is written, a dash where it is unknown."""
    return "-" if value is None else format(value, form)


#: Heading, column titles and rows.
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Report:
    """What a study found.

    ``name``: of its files; ``results``: for the JSON; ``notes``: sentences below the tables;
    ``draw``: draws the picture, where there is one.
    """

    name: str
    title: str
    results: Mapping[str, Any]
    tables: Sequence[Table]
    notes: Sequence[str]
    draw: Callable[[Figure], None] | None = None

    def write(self, study: Study, show: bool = True) -> None:
        """Write NAME.json, .md and .png into the study's folder; ``show``: print the Markdown."""
        hardware = machine("cuda" if study.gpu else "cpu")
        versions = {**software(), **installed(("tensorly",))}  # which only converting needs
        date, command = time.strftime("%Y-%m-%dT%H:%M:%S%z"), f"{PROGRAM} {join(study.typed)}"
        facts = {"date": date, "command": command, "machine": hardware, "software": versions}
        write_json(study.out / f"{self.name}.json", {**facts, **self.results})
        if self.draw:
            figure = Figure(figsize=(9, 6), layout="constrained")
            self.draw(figure)
            with atomic_path(study.out / f"{self.name}.png") as temporary:
                figure.savefig(temporary, dpi=DPI, format="png")
        lines = {"date": date, "command": f"`{command}`", **hardware, **versions}
        parts = [f"# {self.title}"]
        for heading, columns, rows in self.tables:
            parts += [f"## {heading}", align(columns, rows)]
        parts.append("\n".join(f"- {note}" for note in self.notes))
        parts.append("\n".join(f"- {key}: {value}" for key, value in lines.items()))
        text = "\n\n".join(parts) + "\n"
        write_text(study.out / f"{self.name}.md", text)
        if show:
            print(text, end="")

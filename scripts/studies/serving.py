"""``serving``: plain text by each engine of ``fairseq-mhe translate``, of two rows.

All ways of one row take turns in one run, each in a process of its own: lines a second, time to
load, memory, size of the weights.
"""

import argparse
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fairseq_mhe.bench.benchmark import STOCK, Cell, Settings, Workload
from fairseq_mhe.bench.columns import RATIO, Column, mebibytes, number
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.bench.report import rows_of
from fairseq_mhe.bench.turns import measure, summaries
from fairseq_mhe.bench.worker import OK, workers
from fairseq_mhe.checkpoints.safe_load import save_checkpoint
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.files import sha256
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.common.system import cores
from fairseq_mhe.convert.to_ctranslate2 import check_installed
from fairseq_mhe.deploy import fairseq_format
from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.trained import open_trained
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, arch_name, sizes
from fairseq_mhe.models.build import build
from fairseq_mhe.prepare.data_folder import load_task
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report.plots import COLOURS
from fairseq_mhe.runs.run import Run
from studies import study as shared
from studies.budget_sizes import by_option
from studies.study import Report, Study

_COLUMNS: tuple[Column, ...] = (
    number("lines/s", "rate", ",.1f"),
    ("vs fairseq", RATIO[1]),
    number("seconds to load", "load_seconds", ".1f"),
    mebibytes("memory while translating, MiB", "peak_bytes"),
    mebibytes("weights, MiB", "file_bytes", ",.2f"),
)
#: Each is the name of a bundle's format, too.
_ENGINES = ("fairseq", "ctranslate2")


@dataclass(frozen=True)
class Way:
    """A bundle of the engine's format, and how it is loaded."""

    bundle: Path
    engine: str
    int8: bool


@dataclass(frozen=True, kw_only=True)
class ServingSettings(Settings):
    """The lines, and the ways by the names of the variants."""

    lines: tuple[str, ...]
    ways: Mapping[str, Way]


class ServingWorkload(Workload):
    """Plain text to plain text, as a program would ask for it."""

    settings: ServingSettings

    def prepare(self, cell: Cell) -> None:
        """The bundle, loaded."""
        way, begun = self.settings.ways[self.variant], time.perf_counter()
        self._translator = Translator.load(
            way.bundle, engine=way.engine, int8=way.int8, cpu=True, threads=self.settings.threads
        )
        self._loaded = time.perf_counter() - begun

    def repetition(self) -> dict[str, float]:
        """Seconds to translate it all."""
        watch = Stopwatch(self.device)
        with watch.part("total"):
            self._found = self._translator.translate(self.settings.lines)
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Lines, seconds to load, and bytes of the weights."""
        folder = self.settings.ways[self.variant].bundle
        size = sum(path.stat().st_size for path in folder.glob("model.*"))
        found = {"units": len(self._found), "load_seconds": self._loaded, "file_bytes": size}
        return {**found, "letters": sum(map(len, self._found))}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``serving``."""
    add = parser.add_argument
    add("--run", dest="model", type=Path, required=True, metavar="RUN", help="a finished run")
    told = "a larger row, with random weights of the same kind (default: %(default)s)"
    add("--row", choices=[*ROWS, *SMALL_ROWS], default="base", help=told)
    told = "lines of the test set for the larger row (default: %(default)s)"
    add("--lines", type=positive, default=100, metavar="N", help=told)
    told = "(default: all, %(default)s)"
    add("--threads", type=positive, default=cores(), metavar="N", help=told)
    told = "rounds (default: %(default)s)"
    add("--repetitions", type=positive, default=3, metavar="N", help=told)
    shared.add_arguments(parser, "serving")


def run(args: argparse.Namespace) -> None:
    """Export, measure and report."""
    check_installed()
    fairseq_format.check_installed()
    args.cpu = True
    found = shared.finished_run(args.model)
    study = shared.open_study(args, found)
    lines = tuple(read_lines(study.data.text(study.subset, 0)))
    with only_one(study.out):
        larger = _untrained(study, found, args.row)
        results = {}
        for row, path, some in (
            (found.row, found.folder, lines),
            (f"{args.row}, random weights", larger, lines[: args.lines]),
        ):
            results[row] = _measured(study, row, path, some, args)
        _report(study, found, results, args)


def _untrained(study: Study, like: Run, row: str) -> Path:
    """A checkpoint of the run's kinds and another row, with random weights."""
    path = study.out / f"{row}-untrained.pt"

    def action() -> None:
        kinds = like.settings["attention"]
        options = {**sizes(row).options(), "_name": arch_name(row), "share_all_embeddings": True}
        options |= by_option(kinds)
        model = build(options, load_task(study.data), seed=1)
        state = {"args": None, "cfg": {"model": options}, "model": model.state_dict()}
        save_checkpoint(state, path)

    inputs = {"row": row, "like": sha256(like.model)}
    with quiet_fairseq():
        Steps(study.out).perform(path.name, inputs, [path], action)
    return path


def _measured(
    study: Study, row: str, model: Path, lines: tuple[str, ...], args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Each way's speed, memory and size."""
    ways = {}
    for form, int8 in product(_ENGINES, (False, True)):
        folder = study.out / f"{model.name.removesuffix('.pt')}-{form}"
        with quiet_fairseq():
            _exported(study, model, form, folder)
        ways[f"{form}{', int8' if int8 else ''}"] = Way(folder, form, int8)
    ways = {STOCK if name == "fairseq" else name: way for name, way in ways.items()}
    settings = ServingSettings(device="cpu", threads=args.threads, lines=lines, ways=ways)
    with (
        workers(dict.fromkeys(ways, ServingWorkload), settings) as started,
        Board("turns") as board,
    ):
        board.add(row, len(started) * args.repetitions)
        found = summaries(measure(started, {}, args.repetitions, partial(board.advance, row)))
    return {"fairseq" if name == STOCK else name: result for name, result in found.items()}


def _exported(study: Study, model: Path, form: str, folder: Path) -> None:
    """The bundle ``folder`` of a run folder or a checkpoint, made once."""

    def action() -> None:
        say(f"exporting {folder.name}")
        shutil.rmtree(folder, ignore_errors=True)  # of another model
        export(open_trained(model, study.data.folder), form, folder)

    inputs = {"model": sha256(model / "model.pt" if model.is_dir() else model)}
    Steps(study.out).perform(folder.name, inputs, [folder], action)


def _report(
    study: Study, run: Run, found: Mapping[str, dict[str, dict[str, Any]]], args: argparse.Namespace
) -> None:
    title = f"Serving: plain text by each engine, {run.kind}"
    notes = [
        f"{study.subset} of the run's data: all lines with the run's own model, the first "
        f"{args.lines} with random weights, whose translations go on to the limit of length; beam "
        f"and limits are the recipes'; threads {args.threads}; median of {args.repetitions} rounds "
        "in which all take turns, the ratio's quartiles in brackets.",
        "Memory: above what the process held with the model loaded. Weights: model.safetensors or "
        "model.bin; int8 is rounded when it is loaded. CTranslate2 keeps shared heads once.",
    ]
    headings = ["way", *(heading for heading, _ in _COLUMNS)]
    tables = [(row, headings, rows_of(_COLUMNS, ways)) for row, ways in found.items()]
    results = {"threads": args.threads, "repetitions": args.repetitions, "rows": dict(found)}
    draw = partial(_draw, found=found, title=title)
    Report("serving", title, results, tables, notes, draw).write(study)


def _draw(figure: Figure, found: Mapping[str, dict[str, dict[str, Any]]], title: str) -> None:
    for axes, (row, ways) in zip(figure.subplots(len(found)), found.items(), strict=True):
        good = {name: way["rate"] for name, way in ways.items() if way["status"] == OK}
        axes.barh(list(good)[::-1], list(good.values())[::-1], color=COLOURS[0])
        axes.set_title(row, fontsize=11)
        axes.set_xlabel("lines/s", fontsize=10)
    figure.suptitle(title, fontsize=12)

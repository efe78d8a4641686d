"""``fairseq-mhe compare-engines``: one test set by stock fairseq, fairseq with MHE, and CTranslate2.

All take turns in one run, each in a process of its own: sentences/s, memory, size of the model's
file, BLEU.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from fairseq_mhe.bench.benchmark import STOCK
from fairseq_mhe.bench.translation import Engine, TranslationSettings, TranslationWorkload
from fairseq_mhe.bench.turns import measure, summaries
from fairseq_mhe.bench.worker import OK, workers
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.common.system import cores
from fairseq_mhe.convert.compare import quiet_fairseq
from fairseq_mhe.convert.fold import fold
from fairseq_mhe.convert.to_ctranslate2 import check_installed, convert, new_folder
from fairseq_mhe.experiments import studies
from fairseq_mhe.experiments.studies import Study
from fairseq_mhe.models.packed import int8_available
from fairseq_mhe.report.plots import COLOURS
from fairseq_mhe.runs import scoring
from fairseq_mhe.runs.recipes import recipe
from fairseq_mhe.runs.run import Run

PRECISIONS = ("float32", "int8")
_MIB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe compare-engines``."""
    parser.add_argument(
        "--mha", type=Path, required=True, metavar="RUN", help="finished run of mha"
    )
    parser.add_argument(
        "--mhe",
        type=Path,
        required=True,
        metavar="RUN",
        help="finished run of another kind, mhe_mul",
    )
    parser.add_argument(
        "--threads", type=positive, default=cores(), metavar="N", help="(default: all, %(default)s)"
    )
    parser.add_argument(
        "--repetitions", type=positive, default=5, metavar="N", help="rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--beam", type=positive, metavar="N", help="hypotheses; 1 is greedy (default: the recipe's)"
    )
    parser.add_argument(
        "--max-tokens", type=positive, metavar="N", help="of a batch (default: the recipe's)"
    )
    studies.add_arguments(parser, "engines")


def run(args: argparse.Namespace) -> None:
    """Fold and convert both models, measure all engines, and report."""
    check_installed()
    console = Console(stderr=True)
    mha, mhe = studies.finished_run(args.mha, "mha"), studies.finished_run(args.mhe)
    study = studies.open_study(args, mha, console)
    if mhe.settings["data"]["fingerprint"] != study.data.fingerprint:
        raise UserError(
            f"{mhe.folder} was trained on other data than {mha.folder}: give runs of the same data"
        )
    with only_one(study.out):
        engines = _engines(study, mha, mhe)
        decoding = recipe(mha.row).decoding
        cell = {**asdict(decoding), **({"beam": args.beam} if args.beam else {})}
        cell["max_tokens"] = args.max_tokens or decoding.max_tokens
        found = _measured(study, engines, cell, args)
        _report(study, found, cell, args)


def _engines(study: Study, mha: Run, mhe: Run) -> dict[str, Engine]:
    """Every model in every form, made once."""
    folder = study.out / "models"
    stock = folder / "mha-stock.pt"
    _made(
        study,
        mha,
        stock,
        lambda source, path: fold(source, path, None, 1, study.subset, study.console),
    )
    engines = {STOCK: Engine(stock)}
    for run, precision in itertools.product((mha, mhe), PRECISIONS):
        if precision == "int8" and (study.gpu or not int8_available()):
            continue
        engines[f"fairseq_mhe {run.kind} {precision}"] = Engine(run.model, precision)
    data = study.data
    for run, shared, precision in itertools.product((mha, mhe), (False, True), PRECISIONS):
        if shared and run is mha:
            continue  # its heads share nothing
        layout = " shared heads" if shared else ""
        path = folder / f"{run.kind}{layout.replace(' ', '-')}-{precision}"

        def write(
            source: Any, path: Path, precision: str = precision, shared: bool = shared
        ) -> None:
            if not path.exists():
                with new_folder(path) as new:
                    convert(source, data, new, precision, shared)

        _made(study, run, path, write)
        engines[f"CTranslate2 {run.kind}{layout} {precision}"] = Engine(path, precision)
    return engines


def _made(study: Study, run: Run, path: Path, make: Any) -> None:
    """Turn a run's model into ``path``, unless that is done."""

    def action() -> None:
        study.say(f"making {path.name}")
        with quiet_fairseq():
            make(open_source(run.model), path)

    path.parent.mkdir(parents=True, exist_ok=True)
    Steps(study.out).perform(path.name, {"model": sha256(run.model)}, [path], action)


def _measured(
    study: Study, engines: Mapping[str, Engine], cell: Mapping[str, Any], args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Each engine's speed, memory, size and BLEU."""
    settings = TranslationSettings(
        "cuda" if study.gpu else "cpu",
        args.threads,
        data=study.data,
        subset=study.subset,
        engines=dict(engines),
    )
    makes = dict.fromkeys(engines, TranslationWorkload)
    with workers(makes, settings) as started, Board("turns", console=study.console) as board:
        board.add(study.subset, len(started) * args.repetitions)
        progress = functools.partial(board.advance, study.subset)
        found = summaries(measure(started, cell, args.repetitions, progress))
    references = scoring.read_lines(study.data.text(study.subset, 1))
    for result in found.values():
        if result["status"] == OK:
            score = scoring.score(study.data.detokenise(result.pop("translations")), references)
            result["bleu"] = asdict(score.bleu)
    return found


def _report(
    study: Study,
    found: Mapping[str, dict[str, Any]],
    cell: Mapping[str, Any],
    args: argparse.Namespace,
) -> None:
    columns = ["engine", "sentences/s", "vs stock", "peak memory, MiB", "model file, MiB", "BLEU"]
    rows = [[name, *_row(result)] for name, result in found.items()]
    good = {name: result for name, result in found.items() if result["status"] == OK}
    words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in cell.items())
    notes = [
        f"{study.subset} of the runs' data, {good[STOCK]['units']:,} sentences; {words}; threads {args.threads}; "
        f"median of {args.repetitions} rounds in which all take turns, the ratio's quartiles in brackets.",
        "Peak memory: of the process while it translates, above what it held with the model and the sentences loaded.",
        "fairseq_mhe ... int8: the same checkpoint with int8_generation, which rounds weights when it is loaded.",
        "Model file: a checkpoint holds float32 weights; stock is the MHA run folded to fairseq's own transformer.",
        f"BLEU `{good[STOCK]['bleu']['signature']}`.",
    ]
    title = "Engines: stock fairseq, fairseq with MHE, and CTranslate2 with folded models"
    results = {
        "cell": dict(cell),
        "threads": args.threads,
        "repetitions": args.repetitions,
        "engines": dict(found),
    }
    studies.write_report(
        study,
        "engines",
        title,
        results,
        [("One run on one corpus", columns, rows)],
        notes,
        lambda f: _draw(f, good, title),
    )


def _row(result: Mapping[str, Any]) -> list[str]:
    if result["status"] != OK:
        return [result["status"], *["-"] * 4]
    ratio = result["relative"]
    peak = "-" if result["peak_bytes"] is None else f"{result['peak_bytes'] / _MIB:,.1f}"
    return [
        f"{result['rate']:,.1f}",
        f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]",
        peak,
        f"{result['file_bytes'] / _MIB:,.2f}",
        f"{result['bleu']['score']:.2f}",
    ]


def _draw(figure: Figure, found: Mapping[str, Mapping[str, Any]], title: str) -> None:
    axes = figure.subplots()
    names: Sequence[str] = list(found)[::-1]
    rates = [found[name]["rate"] for name in names]
    axes.barh(
        range(len(names)),
        rates,
        color=[COLOURS[1] if "CTranslate2" in name else COLOURS[0] for name in names],
    )
    for place, name in enumerate(names):
        result = found[name]
        text = f"  {result['relative']['median']:.2f}x, BLEU {result['bleu']['score']:.1f}"
        axes.annotate(text, (result["rate"], place), va="center", fontsize=10)
    axes.set_yticks(range(len(names)), names, fontsize=10)
    axes.set_xlim(right=1.35 * max(rates))
    axes.set_xlabel("sentences/s", fontsize=12)
    figure.suptitle(title, fontsize=12)

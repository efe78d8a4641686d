"""``compare-engines``: one test set by stock fairseq, fairseq with MHE, and CTranslate2.

All take turns in one run, each in a process of its own: sentences/s, memory, size of the model's
file, BLEU.
"""

import argparse
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fairseq_mhe.bench.benchmark import STOCK
from fairseq_mhe.bench.columns import RATIO, Result, mebibytes, number
from fairseq_mhe.bench.report import label, rows_of
from fairseq_mhe.bench.translation import Engine, TranslationSettings, TranslationWorkload
from fairseq_mhe.bench.turns import measure, summaries
from fairseq_mhe.bench.worker import OK, workers
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import new_folder, sha256
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.common.system import cores
from fairseq_mhe.common.tables import Column
from fairseq_mhe.convert.difference import quiet_fairseq
from fairseq_mhe.convert.fold import fold
from fairseq_mhe.convert.to_ctranslate2 import check_installed, convert
from fairseq_mhe.models.packed import int8_available
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report.plots import COLOURS
from fairseq_mhe.runs import scoring
from fairseq_mhe.runs.recipes import recipe
from fairseq_mhe.runs.run import Run
from studies import study as shared
from studies.study import Report, Study

_PRECISIONS = ("float32", "int8")
_COLUMNS: tuple[Column, ...] = (
    number("sentences/s", "rate", ",.1f"),
    RATIO,
    mebibytes("peak memory, MiB", "peak_bytes"),
    mebibytes("model file, MiB", "file_bytes", ",.2f"),
    ("BLEU", lambda result: f"{result['bleu']['score']:.2f}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``compare-engines``."""
    add = parser.add_argument
    add("--mha", type=Path, required=True, metavar="RUN", help="finished run of mha")
    told = "finished run of another kind, mhe_mul"
    add("--mhe", type=Path, required=True, metavar="RUN", help=told)
    told = "(default: all, %(default)s)"
    add("--threads", type=positive, default=cores(), metavar="N", help=told)
    told = "rounds (default: %(default)s)"
    add("--repetitions", type=positive, default=5, metavar="N", help=told)
    told = "hypotheses; 1 is greedy (default: the recipe's)"
    add("--beam", type=positive, metavar="N", help=told)
    add("--max-tokens", type=positive, metavar="N", help="of a batch (default: the recipe's)")
    shared.add_arguments(parser, "engines")


def run(args: argparse.Namespace) -> None:
    """Fold and convert both models, measure all engines, and report."""
    check_installed()
    mha, mhe = shared.finished_run(args.mha, "mha"), shared.finished_run(args.mhe)
    study = shared.open_study(args, mha, mhe)
    with only_one(study.out):
        engines = dict(_engines(study, mha, mhe))
        cell = asdict(recipe(mha.row).decoding)
        for name in ("beam", "max_tokens"):
            cell[name] = getattr(args, name) or cell[name]
        found = _measured(study, engines, cell, args)
        _report(study, found, cell, args)


def _engines(study: Study, mha: Run, mhe: Run) -> Iterator[tuple[str, Engine]]:
    """Every model in every form, made once, with its name."""
    folder = study.out / "models"
    stock = _made(study, mha, folder / "mha-stock.pt", fold)
    yield STOCK, Engine(stock)
    for run, precision in itertools.product((mha, mhe), _PRECISIONS):
        if precision == "float32" or (int8_available() and not study.gpu):
            yield f"fairseq_mhe {run.kind} {precision}", Engine(run.model, precision)
    # MHA's heads share nothing.
    layouts = ((mha, ""), (mhe, ""), (mhe, " shared heads"))
    for (run, layout), precision in itertools.product(layouts, _PRECISIONS):
        path = folder / f"{run.kind}{layout.replace(' ', '-')}-{precision}"
        _made(study, run, path, partial(_to_ctranslate2, study, precision, bool(layout)))
        yield f"CTranslate2 {run.kind}{layout} {precision}", Engine(path, precision)


def _to_ctranslate2(
    study: Study, precision: str, shared_heads: bool, source: Source, path: Path
) -> None:
    shutil.rmtree(path, ignore_errors=True)  # of another model
    with new_folder(path) as new:
        binary, languages = study.data.binary, study.data.languages
        convert(source, binary, languages, new, precision, shared_heads)


def _made(study: Study, run: Run, path: Path, make: Callable[[Source, Path], object]) -> Path:
    """``path``, into which a run's model is turned unless that is done."""

    def action() -> None:
        say(f"making {path.name}")
        with quiet_fairseq():
            make(open_source(run.model), path)

    path.parent.mkdir(parents=True, exist_ok=True)
    Steps(study.out).perform(path.name, {"model": sha256(run.model)}, [path], action)
    return path


def _measured(
    study: Study, engines: Mapping[str, Engine], cell: Mapping[str, Any], args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Each engine's speed, memory, size and BLEU."""
    settings = TranslationSettings(
        device="cuda" if study.gpu else "cpu",
        threads=args.threads,
        data=study.data,
        subset=study.subset,
        engines=engines,
    )
    makes = dict.fromkeys(engines, TranslationWorkload)
    with workers(makes, settings) as started, Board("turns") as board:
        board.add(study.subset, len(started) * args.repetitions)
        progress = partial(board.advance, study.subset)
        found = summaries(measure(started, cell, args.repetitions, progress))
    for result in found.values():
        if result["status"] == OK:
            result["bleu"] = _bleu(study, study.data.detokenise(result.pop("translations")))
    return found


def _bleu(study: Study, translations: Sequence[str]) -> dict[str, Any]:
    """By the tokeniser of the target language, as runs are scored."""
    references = list(read_lines(study.data.text(study.subset, 1)))
    tokenise = scoring.bleu_tokeniser(study.data.languages[1])
    return asdict(scoring.score(translations, references, tokenise=tokenise).bleu)


def _report(
    study: Study, found: Mapping[str, Result], cell: Mapping[str, Any], args: argparse.Namespace
) -> None:
    good = {name: result for name, result in found.items() if result["status"] == OK}
    if STOCK not in good:
        status = found[STOCK]["status"]
        raise UserError(f"{STOCK}: {status}: there is nothing to compare with")
    notes = [
        f"{study.subset} of the runs' data, {good[STOCK]['units']:,} sentences; {label(cell)}; "
        f"threads {args.threads}; median of {args.repetitions} rounds in which all take turns, the "
        "ratio's quartiles in brackets.",
        "Peak memory: of the process while it translates, above what it held with the model and "
        "the sentences loaded.",
        "fairseq_mhe ... int8: the same checkpoint with int8_generation, which rounds weights when "
        "it is loaded.",
        "Model file: a checkpoint holds float32 weights; stock is the MHA run folded to fairseq's "
        "own transformer.",
        f"BLEU `{good[STOCK]['bleu']['signature']}`.",
    ]
    title = "Engines: stock fairseq, fairseq with MHE, and CTranslate2 with folded models"
    results = {"cell": dict(cell), "threads": args.threads, "repetitions": args.repetitions}
    results["engines"] = dict(found)
    headings = ["engine", *(heading for heading, _ in _COLUMNS)]
    tables = [("One run on one corpus", headings, rows_of(_COLUMNS, found))]
    draw = partial(_draw, found=good, title=title)
    Report("engines", title, results, tables, notes, draw).write(study)


def _draw(figure: Figure, found: Mapping[str, Result], title: str) -> None:
    axes = figure.subplots()
    names = list(found)[::-1]
    rates = [found[name]["rate"] for name in names]
    colours = [COLOURS[1] if "CTranslate2" in name else COLOURS[0] for name in names]
    axes.barh(range(len(names)), rates, color=colours)
    for place, name in enumerate(names):
        result = found[name]
        text = f"  {result['relative']['median']:.2f}x, BLEU {result['bleu']['score']:.1f}"
        axes.annotate(text, (result["rate"], place), va="center", fontsize=10)
    axes.set_yticks(range(len(names)), names, fontsize=10)
    axes.set_xlim(right=1.35 * max(rates))
    axes.set_xlabel("sentences/s", fontsize=12)
    figure.suptitle(title, fontsize=12)

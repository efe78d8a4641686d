"""``collaborative-curve``: BLEU against D, the figure of Cordonnier et al. 2020 on one's own run.

Four series over the width D of shared queries and keys: a trained MHA decomposed to D without
fine-tuning, the same after a short fine-tuning, collaborative attention trained from scratch, and
MHA whose keys are as wide in all.
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fairseq_mhe.common.arguments import positive, positive_list, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.convert.to_collaborative import report, to_collaborative
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.report.plots import DASHES, look
from fairseq_mhe.runs.run import Run
from studies import study as shared
from studies.study import Report, Study

#: The series, in the order of the paper's figure, and what they are called in it.
_SERIES = {
    "decomposed": "decomposed, not fine-tuned",
    "fine-tuned": "decomposed and fine-tuned",
    "scratch": "collaborative from scratch",
    "mha": "MHA with heads D/n wide",
}
#: fairseq-train's words for heads that are not the row's.
_OF_HEADS = ("--encoder-attention-heads", "--decoder-attention-heads", "--attention-head-dim")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``collaborative-curve``."""
    add = parser.add_argument
    add("--run", dest="mha", type=Path, required=True, metavar="RUN", help="finished run of mha")
    dims, told = "16,32,64,128", "widths (default: %(default)s)"
    add("--dims", type=positive_list, default=dims, metavar="D,...", help=told)
    series, told = ",".join(_SERIES), "which (default: %(default)s)"
    add("--series", type=some_of(_SERIES), default=series, metavar="NAME,...", help=told)
    add("--iterations", type=positive, default=200, metavar="N", help="rounds of the decomposition")
    add("--unweighted", action="store_true", help="decompose the bare weights, as the paper does")
    shared.add_tuning_arguments(parser, 0.1)
    shared.add_arguments(parser, "collaborative-curve")


def run(args: argparse.Namespace) -> None:
    """Convert, train, translate, score and report; what is done already is not done again."""
    mha = shared.finished_run(args.mha, "mha")
    study = shared.open_study(args, mha)
    args.dims = sorted(set(args.dims))
    points: dict[str, dict[int, Run]] = {}
    with only_one(study.out, below=False):
        for name in _SERIES:
            if name in args.series:
                points[name] = {dim: _point(study, mha, name, dim, args) for dim in args.dims}
        own = [point for series in points.values() for point in series.values()]
        study.check_alike([mha, *own])
        study.work([point for point in own if point is not mha])
        study.score([mha])
        _report(study, mha, points, args)


def _point(study: Study, mha: Run, series: str, dim: int, args: argparse.Namespace) -> Run:
    """The run folder of a series for one D."""
    name = f"{series}-D{dim}-seed{mha.seed}"
    if series == "mha":
        return _narrower(study, mha, dim, name)
    training, start = mha.training, None
    if series != "scratch":
        training = shared.share(mha.training, args.fraction, args.lr)
        start = _decomposed(study, mha, dim, args)
    if series == "decomposed":
        training = replace(mha.training, updates=0, patience=0)
    options = ["--collaborative-dim", str(dim)]
    return study.model_of(name, mha, "collaborative", training, options, start)


def _narrower(study: Study, mha: Run, dim: int, name: str) -> Run:
    """MHA from scratch whose heads make ``dim`` in all: for its own width the run itself.

    Raises:
        UserError: the heads cannot share it, or are not those of the row.
    """
    for flag in mha.settings.get("options", ()):
        if flag in _OF_HEADS:
            raise UserError(
                f"{mha.folder} has heads of its own ({flag}), and those of the series mha are the "
                "row's: leave mha out of --series, or choose another --run"
            )
    row = sizes(mha.row)
    if dim == row.embed_dim:
        return mha
    if dim % row.heads:
        raise UserError(
            f"MHA's {row.heads} heads cannot share a key width of {dim}: "
            "choose --dims that they divide"
        )
    options = ["--attention-head-dim", str(dim // row.heads)]
    return study.model_of(name, mha, "mha", mha.training, options)


def _folder(mha: Run, dim: int) -> str:
    return f"start-D{dim}-seed{mha.seed}"


def _decomposed(study: Study, mha: Run, dim: int, args: argparse.Namespace) -> Path:
    """The run's model with collaborative attention of width ``dim``."""
    weighted = not args.unweighted

    def action(output: Path, material: Any) -> dict[str, Any]:
        say(f"decomposing {mha.name} to D = {dim}")
        return report(to_collaborative(output, dim, args.iterations, material, weighted))

    inputs = {"dim": dim, "iterations": args.iterations, "weighted": weighted}
    inputs["sentences"] = args.sentences
    return study.convert(mha, _folder(mha, dim), inputs, action)


def _report(
    study: Study, mha: Run, points: Mapping[str, Mapping[int, Run]], args: argparse.Namespace
) -> None:
    study.check_alike([mha, *(run for series in points.values() for run in series.values())])
    bleu: dict[str, dict[int, float]] = {}
    parameters: dict[str, dict[int, int]] = {}
    for name, series in points.items():
        bleu[name], parameters[name] = {}, {}
        for dim, point in series.items():
            bleu[name][dim] = study.bleu(point)
            parameters[name][dim] = read_json(point.counts)["attention_parameters"]
    reference, conversions = study.bleu(mha), {}
    for dim in args.dims:
        if conversion := study.conversion(_folder(mha, dim)):
            conversions[dim] = conversion
    heading = ["D", *(_SERIES[name] for name in points)]
    heading += [f"attention parameters, {name}" for name in points]
    rows = []
    for dim in args.dims:
        row = [str(dim), *(f"{bleu[name][dim]:.2f}" for name in points)]
        rows.append([*row, *(f"{parameters[name][dim]:,}" for name in points)])
    tables = [(f"BLEU by D (the run itself, MHA: {reference:.2f})", heading, rows)]
    if conversions:
        told = "Decomposition: relative error of the scores and seconds, by sublayer"
        tables.append((told, *_layers(conversions)))
    tuned = shared.share(mha.training, args.fraction, args.lr)
    results = {
        "source": {"run": mha.name, "bleu": reference, **read_json(mha.counts)},
        "dims": args.dims,
        "bleu": bleu,
        "attention_parameters": parameters,
        "conversions": conversions,
        "fine_tuning": asdict(tuned),
        "signature": study.signature(mha),
    }
    weights = f", weighted by the inputs of {args.sentences:,} training sentences"
    notes = [
        f"BLEU `{study.signature(mha)}` on {study.subset}, one seed ({mha.seed}); trained for "
        f"{mha.training.updates:,} updates, fine-tuned for {tuned.updates:,} "
        f"(peak learning rate {tuned.lr}).",
        "MHA with heads D/n wide has narrower values too: this model's head width is that of keys "
        "and values.",
        f"Errors are those of the decomposed scores{'' if args.unweighted else weights}.",
    ]
    title = "Collaborative attention: BLEU against the width D of shared queries and keys"
    draw = partial(_draw, bleu=bleu, reference=reference, title=title)
    Report("collaborative-curve", title, results, tables, notes, draw).write(study)


def _layers(conversions: Mapping[int, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a row a sublayer, error and seconds for each D."""
    dims = list(conversions)
    rows = []
    for index, first in enumerate(conversions[dims[0]]["layers"]):
        layers = [conversions[dim]["layers"][index] for dim in dims]
        told = [f"{layer['error']:.3g} ({layer['seconds']:.1f} s)" for layer in layers]
        rows.append([first["name"], *told])
    totals = [sum(layer["seconds"] for layer in conversions[dim]["layers"]) for dim in dims]
    rows.append(["all", *(f"{seconds:.1f} s" for seconds in totals)])
    return ["sublayer", *(f"D = {dim}" for dim in dims)], rows


def _draw(
    figure: Figure, bleu: Mapping[str, Mapping[int, float]], reference: float, title: str
) -> None:
    axes = figure.subplots()
    told = "the MHA that was decomposed"
    axes.axhline(reference, color="#7F7F7F", linewidth=2, linestyle=":", label=told)
    for index, (name, series) in enumerate(bleu.items()):
        style = {**look(index), "linestyle": DASHES[index], "linewidth": 2, "markersize": 8}
        axes.plot(list(series), list(series.values()), label=_SERIES[name], **style)
    dims = sorted({dim for series in bleu.values() for dim in series})
    axes.set_xscale("log", base=2)
    axes.set_xticks(dims, [str(dim) for dim in dims])
    axes.set_xlabel("D, width of all queries and keys", fontsize=12)
    axes.set_ylabel("BLEU", fontsize=12)
    axes.set_title(title, fontsize=12)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=11)

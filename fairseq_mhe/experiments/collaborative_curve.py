"""``fairseq-mhe collaborative-curve``: BLEU against D, the figure of Cordonnier et al. 2020 on one's own run.

Four series over the width D of shared queries and keys: a trained MHA decomposed to D without
fine-tuning, the same after a short fine-tuning, collaborative attention trained from scratch, and
MHA whose keys are as wide in all.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.convert.to_collaborative import to_collaborative
from fairseq_mhe.experiments import studies
from fairseq_mhe.experiments.studies import CONVERSION, Study
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.report.plots import COLOURS, DASHES, MARKS
from fairseq_mhe.runs.run import Run

#: The series, in the order of the paper's figure, and what they are called in it.
SERIES = {
    "decomposed": "decomposed, not fine-tuned",
    "fine-tuned": "decomposed and fine-tuned",
    "scratch": "collaborative from scratch",
    "mha": "MHA with heads D/n wide",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe collaborative-curve``."""
    parser.add_argument(
        "--run", dest="mha", type=Path, required=True, metavar="RUN", help="finished run of mha"
    )
    parser.add_argument(
        "--dims",
        type=_dims,
        default="16,32,64,128",
        metavar="D,...",
        help="widths (default: %(default)s)",
    )
    parser.add_argument(
        "--series",
        type=_series,
        default=",".join(SERIES),
        metavar="NAME,...",
        help="which (default: %(default)s)",
    )
    parser.add_argument(
        "--fraction",
        type=float,
        default=0.1,
        metavar="F",
        help="fine-tuning: share of updates (default: %(default)s)",
    )
    parser.add_argument(
        "--lr", type=float, help="fine-tuning: peak learning rate (default: the run's)"
    )
    parser.add_argument(
        "--iterations", type=positive, default=200, metavar="N", help="rounds of the decomposition"
    )
    parser.add_argument(
        "--sentences", type=positive, default=1000, metavar="N", help="pairs to weight errors with"
    )
    parser.add_argument(
        "--unweighted", action="store_true", help="decompose the bare weights, as the paper does"
    )
    studies.add_arguments(parser, "collaborative-curve")


def _dims(text: str) -> list[int]:
    return sorted({positive(word) for word in text.split(",")})


def _series(text: str) -> list[str]:
    for word in text.split(","):
        if word not in SERIES:
            raise argparse.ArgumentTypeError(
                f"unknown series {word!r}; choose of: {', '.join(SERIES)}"
            )
    return [name for name in SERIES if name in text.split(",")]


def run(args: argparse.Namespace) -> None:
    """Convert, train, translate, score and report; what is done already is not done again."""
    console = Console(stderr=True)
    mha = studies.finished_run(args.mha, "mha")
    study = studies.open_study(args, mha, console)
    with only_one(study.out, below=False):
        points = {name: _runs(study, mha, name, args) for name in args.series}
        runs = [
            point for series in points.values() for point in series.values() if point is not mha
        ]
        study.train(runs)
        study.score([mha, *runs] if not study.scored(mha) else runs)
        _report(study, mha, points, args)


def _runs(study: Study, mha: Run, series: str, args: argparse.Namespace) -> dict[int, Run]:
    """The run folders of a series, by D."""
    training = mha.training
    made = {}
    for dim in args.dims:
        name = f"{series}-D{dim}-seed{mha.seed}"
        options = ["--collaborative-dim", str(dim)]
        if series == "mha":
            made[dim] = _narrower(study, mha, dim, name)
        elif series == "scratch":
            made[dim] = study.model_of(name, mha, "collaborative", training, options=options)
        else:
            start = _decomposed(study, mha, dim, args)
            updates = replace(training, updates=0)
            recipe = (
                updates
                if series == "decomposed"
                else studies.share(training, args.fraction, args.lr)
            )
            made[dim] = study.model_of(
                name, mha, "collaborative", recipe, options=options, start=start
            )
    return made


def _narrower(study: Study, mha: Run, dim: int, name: str) -> Run:
    """MHA from scratch whose heads make ``dim`` in all: for its own width the run itself.

    Raises:
        UserError: the heads cannot share it.
    """
    row = {**ROWS, **SMALL_ROWS}[mha.row]
    if dim == row.embed_dim:
        return mha
    if dim % row.heads:
        raise UserError(
            f"MHA's {row.heads} heads cannot share a key width of {dim}: choose --dims that they divide"
        )
    options = ["--attention-head-dim", str(dim // row.heads)]
    return study.model_of(name, mha, "mha", mha.training, options=options)


def _folder(study: Study, mha: Run, dim: int) -> Path:
    return study.out / f"start-D{dim}-seed{mha.seed}"


def _decomposed(study: Study, mha: Run, dim: int, args: argparse.Namespace) -> Path:
    """The run's model with collaborative attention of width ``dim``."""

    def convert(source: Any, output: Path, material: Any) -> dict[str, Any]:
        study.say(f"decomposing {mha.name} to D = {dim}")
        result, _ = to_collaborative(
            source, output, dim, args.iterations, material, not args.unweighted, study.console
        )
        return asdict(result)

    settings = {"dim": dim, "iterations": args.iterations, "weighted": not args.unweighted}
    return studies.perform_conversion(
        study, mha, _folder(study, mha, dim), settings, args.sentences, convert
    )


def _report(
    study: Study, mha: Run, points: Mapping[str, Mapping[int, Run]], args: argparse.Namespace
) -> None:
    bleu = {
        name: {dim: study.bleu(point) for dim, point in series.items()}
        for name, series in points.items()
    }
    parameters = {
        name: {
            dim: read_json(point.counts)["attention_parameters"] for dim, point in series.items()
        }
        for name, series in points.items()
    }
    reference = study.bleu(mha)
    conversions = {
        dim: read_json(_folder(study, mha, dim) / CONVERSION)
        for dim in args.dims
        if (_folder(study, mha, dim) / CONVERSION).is_file()
    }
    training, tuned = mha.training, studies.share(mha.training, args.fraction, args.lr)
    rows = [
        [
            str(dim),
            *(f"{bleu[name][dim]:.2f}" for name in points),
            *(f"{parameters[name][dim]:,}" for name in points),
        ]
        for dim in args.dims
    ]
    heading = [
        "D",
        *(SERIES[name] for name in points),
        *(f"attention parameters, {name}" for name in points),
    ]
    tables = [(f"BLEU by D (the run itself, MHA: {reference:.2f})", heading, rows)]
    if conversions:
        tables.append(
            (
                "Decomposition: relative error of the scores and seconds, by sublayer",
                *_layers(conversions),
            )
        )
    results = {
        "source": {"run": mha.name, "bleu": reference, **read_json(mha.counts)},
        "dims": args.dims,
        "bleu": bleu,
        "attention_parameters": parameters,
        "conversions": conversions,
        "fine_tuning": asdict(tuned),
        "signature": study.signature(mha),
    }
    notes = [
        f"BLEU `{study.signature(mha)}` on {study.subset}, one seed ({mha.seed}); trained for {training.updates:,} "
        f"updates, fine-tuned for {tuned.updates:,} (peak learning rate {tuned.lr}).",
        "MHA with heads D/n wide has narrower values too: this model's head width is that of keys and values.",
        "Errors are those of the decomposed scores"
        + (
            "."
            if args.unweighted
            else f", weighted by the inputs of {args.sentences:,} training sentences."
        ),
    ]
    title = "Collaborative attention: BLEU against the width D of shared queries and keys"
    studies.write_report(
        study,
        "collaborative-curve",
        title,
        results,
        tables,
        notes,
        lambda figure: _draw(figure, bleu, reference, title),
    )


def _layers(conversions: Mapping[int, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a row a sublayer, error and seconds for each D."""
    dims = list(conversions)
    names = [layer["name"] for layer in conversions[dims[0]]["layers"]]
    rows = []
    for index, name in enumerate(names):
        layers = [conversions[dim]["layers"][index] for dim in dims]
        rows.append(
            [name, *(f"{layer['error']:.3g} ({layer['seconds']:.1f} s)" for layer in layers)]
        )
    totals = [sum(layer["seconds"] for layer in conversions[dim]["layers"]) for dim in dims]
    rows.append(["all", *(f"{seconds:.1f} s" for seconds in totals)])
    return ["sublayer", *(f"D = {dim}" for dim in dims)], rows


def _draw(
    figure: Figure, bleu: Mapping[str, Mapping[int, float]], reference: float, title: str
) -> None:
    axes = figure.subplots()
    dims: Sequence[int] = sorted({dim for series in bleu.values() for dim in series})
    axes.axhline(
        reference, color="#7F7F7F", linewidth=2, linestyle=":", label="the MHA that was decomposed"
    )
    for index, (name, series) in enumerate(bleu.items()):
        axes.plot(
            list(series),
            list(series.values()),
            color=COLOURS[index],
            marker=MARKS[index],
            linestyle=DASHES[index % len(DASHES)],
            linewidth=2,
            markersize=8,
            label=SERIES[name],
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(dims, [str(dim) for dim in dims])
    axes.set_xlabel("D, width of all queries and keys", fontsize=12)
    axes.set_ylabel("BLEU", fontsize=12)
    axes.set_title(title, fontsize=12)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=11)

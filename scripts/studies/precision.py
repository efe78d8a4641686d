"""``precision-study``: whether training in bf16 loses anything against float32.

MHA and MHE-Mul of a row, several seeds, in both; validation loss and BLEU are compared with the
noise of seeds.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.report.plots import COLOURS
from fairseq_mhe.report.significance import Noise, noise_of
from fairseq_mhe.runs.precision import AUTO, FLOAT32
from fairseq_mhe.runs.recipes import Recipe
from studies import trainings
from studies.study import Report, Study, or_dash
from studies.trainings import REFERENCE, Done, Variant, everywhere

_KINDS = ("mha", "mhe_mul")
_HALF = "bf16"
_COLUMNS = (
    *("attention", "precision", "valid loss", "sd", "to float32", "p"),
    *("BLEU", "sd", "to float32", "p", "training tokens/s"),
)
_Summaries = Sequence[dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``precision-study``."""
    trainings.add_arguments(parser, [REFERENCE, _HALF])


def run(args: argparse.Namespace) -> None:
    """Train, translate and score what is not, a few at a time, and report after each few."""
    if args.precision != AUTO:
        raise UserError("--precision is what this study varies: leave it out")
    trainings.run(args, lambda recipe: variants(), report)


def variants() -> list[Variant]:
    """Both kinds in float32, then in bf16."""
    return [
        Variant(f"{kind}-{precision}", question, everywhere(kind), changes={"precision": precision})
        for precision, question in ((FLOAT32, REFERENCE), (_HALF, _HALF))
        for kind in _KINDS
    ]


def report(study: Study, recipe: Recipe, done: Done, left: Sequence[str]) -> Report:
    """What is known of the variants that are ``done``; ``left``: the names of the others."""
    summaries = summarise(study, done)
    noises = {name: noise_of(_values(summaries, name)) for name in ("losses", "bleus")}
    _compare(summaries, noises)
    seeds = [f"{what} {seed}" for what in ("loss", "BLEU") for seed in summaries[0]["seeds"]]
    rows = [_row(summary) for summary in summaries]
    about = f"bf16 against float32: {recipe.row}"
    title, results = trainings.heading(about, study, recipe, done, left, summaries)
    notes = [
        f"BLEU `{results['signature']}` on {study.subset}; valid loss: the lowest of a "
        "training, in bits per target token. Both are means over the seeds; p: t-test with the "
        "pooled standard deviation between seeds.",
        "Training tokens/s: target tokens, by the median of the log; models train side by side.",
    ]
    notes += [note for name, noise in noises.items() for note in _of_noise(name, noise)]
    tables = [("Losses and scores", [*_COLUMNS, *seeds], rows)]
    draw = partial(_draw, summaries=summaries, title=title)
    return Report("precision", title, results, tables, notes, draw)


def summarise(study: Study, done: Done) -> list[dict[str, Any]]:
    """One object for each variant: its losses and scores."""
    found = []
    for variant, runs in done.items():
        speeds = [read_json(run.metrics)["tokens_per_second"] or 0.0 for run in runs]
        found.append(
            {
                "attention": runs[0].kind,
                "precision": variant.changes["precision"],
                **study.losses(runs),
                **study.over_seeds(runs),
                "tokens_per_second": round(statistics.mean(speeds), 1),
            }
        )
    return found


def _values(summaries: _Summaries, name: str) -> dict[str, list[float]]:
    return {f"{s['attention']}-{s['precision']}": s[name] for s in summaries}


def _compare(summaries: _Summaries, noises: Mapping[str, Noise | None]) -> None:
    """Add to what was trained in bf16 how it differs from the same in float32."""
    for name, noise in noises.items():
        values = _values(summaries, name)
        for summary in summaries:
            own, other = (f"{summary['attention']}-{each}" for each in (_HALF, FLOAT32))
            if summary["precision"] == _HALF:
                difference = statistics.mean(values[own]) - statistics.mean(values[other])
                p_value = noise.p_value(values, own, other) if noise else None
                found = {"difference": round(difference, 4), "p_value": p_value}
                summary[f"{name}_against_float32"] = found


def _row(summary: Mapping[str, Any]) -> list[str]:
    cells = [summary["attention"], summary["precision"]]
    for name, mean, spread, form in (
        ("losses", "loss", "loss_deviation", ".3f"),
        ("bleus", "bleu", "deviation", ".2f"),
    ):
        found = summary.get(f"{name}_against_float32", {"difference": None, "p_value": None})
        cells += [format(summary[mean], form), or_dash(summary[spread], form)]
        cells += [or_dash(found["difference"], f"+{form}"), or_dash(found["p_value"], ".3f")]
    cells.append(f"{summary['tokens_per_second']:,.0f}")
    losses = [f"{loss:.3f}" for loss in summary["losses"]]
    return [*cells, *losses, *(f"{bleu:.2f}" for bleu in summary["bleus"])]


def _of_noise(name: str, noise: Noise | None) -> list[str]:
    what = {"losses": "valid loss", "bleus": "BLEU"}[name]
    if noise is None:
        return [f"One seed: nothing can be said of {what}'s noise."]
    pooled = (
        f"The standard deviation of {what} between seeds is {noise.deviation:.3f} "
        f"({noise.freedom} degrees of freedom)."
    )
    return [pooled, *trainings.of_unstable(noise)]


def _draw(figure: Figure, summaries: _Summaries, title: str) -> None:
    """Loss beside BLEU; a point for each seed, a column for each kind and precision."""
    names = [f"{summary['attention']}\n{summary['precision']}" for summary in summaries]
    for axes, (name, told) in zip(
        figure.subplots(1, 2), (("losses", "valid loss"), ("bleus", "BLEU")), strict=True
    ):
        for place, summary in enumerate(summaries):
            colour = COLOURS[_KINDS.index(summary["attention"])]
            values = summary[name]
            axes.plot([place] * len(values), values, "o", color=colour)
            axes.plot(place, statistics.mean(values), "_", color=colour, markersize=24)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylabel(told)
        axes.grid(axis="y", alpha=0.3)
    figure.suptitle(title)

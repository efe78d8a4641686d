"""The report of a study: each variant beside its reference, with the command and the machine."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.common.tables import column
from fairseq_mhe.report.plots import add_legend, draw_front, look, name_axes, new_figure, save
from fairseq_mhe.report.results import Cell, check_scored_alike, lowest_loss
from fairseq_mhe.report.table import Block, Row, Table, deviation, filled
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipes import Recipe

if TYPE_CHECKING:
    from studies.study import Study, Variant

PROGRAM = "bash scripts/study.sh"
#: The question of variants that are always trained.
REFERENCE = "reference"
_MEASURES = ("loss", "bleu")
_COLUMNS = (
    column("variant", "variant"),
    column("attention parameters", "attention_parameters", ","),
    column("KV bytes/token", "kv_bytes_per_token", ","),
    column("valid loss", "loss", ".3f"),
    column("sd", "loss_deviation", ".3f"),
    column("difference", "loss_difference", "+.3f"),
    column("p", "loss_p", ".3f"),
    column("BLEU", "bleu", ".2f"),
    column("sd", "bleu_deviation", ".2f"),
    column("difference", "bleu_difference", "+.2f"),
    column("p", "bleu_p", ".3f"),
    (
        "compared with",
        lambda row: "" if row["variant"] == row["reference"] else row["reference"],
    ),
    column("training tokens/s", "tokens_per_second", ",.0f"),
)


def report(
    study: Study,
    recipe: Recipe,
    variants: Sequence[Variant],
    done: Mapping[Variant, Sequence[Job]],
    args: argparse.Namespace,
) -> None:
    """Write what is known of the variants that are ``done``, all references among them."""
    cells = {each: Cell(recipe.row, each.name, tuple(done[each]), args.subset) for each in done}
    check_scored_alike(list(cells.values()))
    summaries = [_summary(variant, cell) for variant, cell in cells.items()]
    for measure in _MEASURES:
        _compare(summaries, measure)
    blocks = []
    for question, meaning in study.questions.items():
        rows = [summary for summary in summaries if summary["question"] == question]
        if rows:
            blocks.append(Block(filled(_COLUMNS, rows), rows, f"{question}: {meaning}"))
    signature = next(iter(cells.values())).values("scores")[0]["bleu"]["signature"]
    seeds = f"seeds {', '.join(map(str, summaries[0]['seeds']))}"
    notes = [
        f"BLEU `{signature}` on {args.subset}; valid loss: the lowest of a training, in bits per "
        f"subword. Means over {seeds}; sd: the standard deviation over them.",
        f"Everything but what a variant names is the recipe of {recipe.row}: "
        f"{recipe.training.updates:,} updates of {recipe.training.batch_tokens:,} tokens.",
        "p: Dunnett's test of all variants that are compared with one (scipy.stats.dunnett), which "
        "takes the noise of all seeds together; none with one seed.",
    ]
    unfinished = [each.name for each in variants if each not in done]
    if unfinished:
        notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
    title = f"{study.title}: {recipe.row}, data {args.data.resolve().name}; {seeds}"
    results = {
        "row": recipe.row,
        "training": dict(recipe.training.options),
        "signature": signature,
        "variants": summaries,
        "unfinished": unfinished,
    }
    save(_figure(title, summaries), args.out / f"{study.name}.png")
    write(args, study.name, Table(title, blocks, notes), results)


def _summary(variant: Variant, cell: Cell) -> dict[str, Any]:
    """A variant's settings, its costs, and what its seeds reached."""
    metrics = [read_json(run.metrics) for run in cell.runs if run.metrics.exists()]
    speeds = [each["tokens_per_second"] for each in metrics if each["tokens_per_second"]]
    summary = {
        "variant": variant.name,
        "question": variant.question,
        "reference": variant.reference,
        "attention": dict(variant.attention),
        "options": dict(variant.options),
        "updates": variant.updates,
        "x": variant.x,
        "seeds": [run.seed for run in cell.runs],
        **read_json(cell.runs[0].counts),
        "tokens_per_second": round(statistics.mean(speeds), 1) if speeds else None,
    }
    values = ([lowest_loss(each) for each in metrics], cell.bleus())
    for measure, of_seeds in zip(_MEASURES, values, strict=True):
        summary[f"{measure}_of_seeds"] = of_seeds
        summary[measure] = round(statistics.mean(of_seeds), 4) if of_seeds else None
        summary[f"{measure}_deviation"] = deviation(of_seeds)
    return summary


def _compare(summaries: Sequence[dict[str, Any]], measure: str) -> None:
    """Add each variant's difference to its reference, and its p-value."""
    by_name = {summary["variant"]: summary for summary in summaries}
    for reference in dict.fromkeys(summary["reference"] for summary in summaries):
        base = by_name[reference]
        others = [
            each
            for each in summaries
            if each["reference"] == reference and each is not base and each[measure] is not None
        ]
        samples = [each[f"{measure}_of_seeds"] for each in others]
        p_values = dunnett(samples, base[f"{measure}_of_seeds"])
        for each, p_value in zip(others, p_values, strict=True):
            each[f"{measure}_difference"] = round(each[measure] - base[measure], 4)
            each[f"{measure}_p"] = p_value


def dunnett(samples: Sequence[Sequence[float]], control: Sequence[float]) -> list[float | None]:
    """Dunnett's p-value of each sample; None of a sample that diverged, and of single seeds."""
    finite = [sample for sample in samples if all(map(math.isfinite, sample))]
    freedom = sum(len(sample) - 1 for sample in [*finite, control])
    if not finite or not freedom or not all(map(math.isfinite, control)):
        return [None] * len(samples)
    p_values = iter(stats.dunnett(*finite, control=control, random_state=0).pvalue.tolist())
    known = [next(p_values) if sample in finite else None for sample in samples]
    return [None if p is None or math.isnan(p) else p for p in known]  # NaN: no noise at all


def write(
    args: argparse.Namespace, name: str, table: Table, results: Mapping[str, Any]
) -> None:
    """Write NAME.md and NAME.json into --out, and print the Markdown."""
    facts = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": f"{PROGRAM} {join(args.typed)}",
        **machine("cuda" if torch.cuda.is_available() and not args.cpu else "cpu"),
        **software(),
    }
    notes = [*table.notes, *(f"{fact}: {value}" for fact, value in facts.items())]
    whole, path = Table(table.title, table.blocks, notes), Path(args.out, f"{name}.md")
    whole.write(path, {"facts": facts, **results})
    print(whole.markdown(), end="")


def _figure(title: str, summaries: Sequence[Row]) -> Figure:
    """Loss and BLEU of each variant; BLEU as curves; loss against cache where caches differ."""
    curves = any(summary["x"] for summary in summaries)
    caches = len({summary["kv_bytes_per_token"] for summary in summaries}) > 1
    panels = 2 + curves + caches
    figure = new_figure(title, 6 * panels, max(4.0, 0.3 * len(summaries) + 1.5))
    left, middle, *others = figure.subplots(1, panels)
    _draw_variants(left, summaries, "loss", "validation loss, bits a subword")
    _draw_variants(middle, summaries, "bleu", "BLEU")
    names = [f"{summary['variant']}  {n}" for n, summary in enumerate(summaries, start=1)]
    left.set_yticks(range(len(names)), names)
    middle.set_yticks(range(len(names)), range(1, len(names) + 1))
    if curves:
        _draw_curves(others[0], summaries)
        add_legend(figure, others[0])
    if caches:
        _draw_cache(others[-1], summaries)
    return figure


def _draw_variants(axes: Axes, summaries: Sequence[Row], measure: str, name: str) -> None:
    questions = list(dict.fromkeys(summary["question"] for summary in summaries))
    for place, summary in enumerate(summaries):
        values, mean = summary[f"{measure}_of_seeds"], summary[measure]
        style = {**look(questions.index(summary["question"])), "markersize": 8, "capsize": 4}
        axes.plot(values, [place] * len(values), ".", color="#7F7F7F")
        if mean is not None:
            axes.errorbar(mean, place, xerr=summary[f"{measure}_deviation"] or 0.0, **style)
        if summary["variant"] == summary["reference"]:
            axes.axvline(mean, color="#BBBBBB", linewidth=2, zorder=0)
    axes.set_ylim(len(summaries) - 0.5, -0.5)
    name_axes(axes, "dots: seeds; bars: sd; grey: reference", name, "")


def _draw_curves(axes: Axes, summaries: Sequence[Row]) -> None:
    """BLEU of each question over D, and of the references as a line."""
    for index, question in enumerate(dict.fromkeys(each["question"] for each in summaries)):
        rows = [each for each in summaries if each["question"] == question]
        if question == REFERENCE:
            axes.axhline(rows[0]["bleu"], color="#BBBBBB", linewidth=2, label=question)
            continue
        points = [(each["x"], each["bleu"]) for each in rows]
        axes.plot(*zip(*points, strict=True), label=question, **look(index))
    name_axes(axes, "", "D", "BLEU")


def _draw_cache(axes: Axes, summaries: Sequence[Row]) -> None:
    points = []
    for number, summary in enumerate(summaries, start=1):
        if summary["loss"] is not None:
            points.append((summary["kv_bytes_per_token"], summary["loss"]))
            axes.plot(*points[-1], ".", color="black")
            axes.annotate(str(number), points[-1], (4, 4), textcoords="offset points")
    draw_front(axes, points, sign=-1)
    axes.margins(0.1)
    name_axes(
        axes, "", "key/value cache, bytes a token (grey: Pareto front)", "validation loss"
    )

"""Pictures of tables, legible in a talk and without colour vision: curves, quality, cost."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.report.table import Row, deviation

#: Okabe and Ito's colours, which differ with every kind of colour vision.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#8C8C00", "#7F7F7F"),
)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DPI = 200
#: The least distance of two marks, as a share of the axis.
_APART = 0.03
#: Costs -> their names on an axis, and the unit they are shown in.
_COSTS = {
    "attention_parameters": ("attention parameters (millions)", 1e6),
    "kv_bytes_per_token": ("key/value cache (KiB per generated token)", 1024),
}


class Mark(NamedTuple):
    """A value of a series with its error bars; ``place``: a category, or a cost."""

    series: str
    place: Any
    value: float
    below: float = 0.0
    above: float = 0.0


def plot(summaries: Sequence[Row], curves: Mapping[str, Row], path: Path, title: str) -> None:
    """Write a picture of learning curves, BLEU against size, and BLEU against cache.

    ``summaries``: what table.json holds; ``curves``: label -> what metrics.json holds.
    """
    figure = new_figure(title)
    left, *panels = figure.subplots(1, 3)
    for index, (name, metrics) in enumerate(curves.items()):
        updates, losses = np.reshape(metrics["valid"], (-1, 2)).T
        left.plot(updates, losses, label=name, **look(index))
    name_axes(left, "Learning curves", "updates", "validation loss (bits per subword)")
    rows = []
    for name, summary in zip(curves, summaries, strict=True):
        rows.append((name, summary, summary["bleu"], summary["bleu_confidence"]))
    _draw_at_costs(panels, rows, "BLEU (bars: 95% bootstrap)")
    save(figure, path, legend=left)


def plot_perplexity(rows: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of causal models: nats a subword against attention parameters and cache.

    ``rows``: of `language_table.perplexity_block`.
    """
    figure = new_figure(title)
    panels, of_kinds = figure.subplots(1, 2), []
    for row in rows:
        bar = deviation(row["nats"]) or 0.0
        of_kinds.append((row["attention"], row, statistics.mean(row["nats"]), bar))
    _draw_at_costs(panels, of_kinds, "nats per subword (bars: standard deviation)")
    save(figure, path, legend=panels[0])


def _draw_at_costs(
    panels: Iterable[Axes], rows: Sequence[tuple[str, Row, float, float]], name: str
) -> None:
    """Draw values over each cost from 0; those at one cost stand side by side.

    ``rows``: series, its costs, its value, and half of its error bar.
    """
    for axes, (cost, (label, unit)) in zip(panels, _COSTS.items(), strict=True):
        step = _APART * max(costs[cost] / unit for _, costs, _, _ in rows)
        taken: list[float] = []
        for index, (series, costs, value, bar) in enumerate(rows):
            place = costs[cost] / unit
            while any(abs(place - other) < step for other in taken):
                place += step
            taken.append(place)
            _draw(axes, Mark(series, place, value, bar, bar), index)
        axes.set_xlim(0, 1.15 * max(taken))
        name_axes(axes, "Quality", label, name)


def plot_rows(summaries: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of several rows: BLEU and PRR of each cell."""
    bleus, shares = [], []
    for summary in summaries:
        kind, row, bar = summary["attention"], summary["row"], summary["bleu_confidence"]
        bleus.append(Mark(kind, row, summary["bleu"], bar, bar))
        if summary["p_value"] is not None:
            prr = summary["prr"]
            below = max(0.0, prr - summary["prr_low"])
            above = max(0.0, summary["prr_high"] - prr)
            shares.append(Mark(kind, row, prr, below, above))
    _plot_scores_and_shares(path, title, bleus, shares, "bars: 95% bootstrap")


def plot_tasks(
    scores: Mapping[str, Mapping[str, Sequence[float]]], path: Path, title: str
) -> None:
    """Write a picture of language models: scores of tasks, and in percent of mha's.

    ``scores``: kind -> task -> scores of the seeds.
    """
    marks, shares = [], []
    for kind, of_kind in scores.items():
        for task, values in of_kind.items():
            mean, bar = statistics.mean(values), deviation(values) or 0.0
            marks.append(Mark(kind, task, mean, bar, bar))
            base = statistics.mean(scores["mha"][task]) if "mha" in scores else 0.0
            if kind != "mha" and base > 0:  # a correlation of chance is 0
                bar = 100 * bar / base
                shares.append(Mark(kind, task, 100 * mean / base, bar, bar))
    _plot_scores_and_shares(path, title, marks, shares, "bars: standard deviation of seeds")


def _plot_scores_and_shares(
    path: Path, title: str, scores: Sequence[Mark], shares: Sequence[Mark], bars: str
) -> None:
    """Scores on the left, and on the right the same in percent of MHA's."""
    figure = new_figure(title)
    left, right = figure.subplots(1, 2)
    series = list(dict.fromkeys(mark.series for mark in scores))
    categories = list(dict.fromkeys(mark.place for mark in scores))
    for axes, marks in ((left, scores), (right, shares)):
        for mark in marks:
            index = series.index(mark.series)
            beside = 0.6 * ((index + 0.5) / len(series) - 0.5)
            _draw(axes, mark._replace(place=categories.index(mark.place) + beside), index)
        axes.set_xticks(range(len(categories)), categories)
        axes.set_xlim(-0.5, len(categories) - 0.5)
    right.axhline(100, color="#BBBBBB", linewidth=2, zorder=0)
    name_axes(left, "Score", "", f"score ({bars})")
    name_axes(right, "Score in percent of MHA's", "", f"PRR, % ({bars})")
    save(figure, path, legend=left)


def _draw(axes: Axes, mark: Mark, index: int) -> None:
    bars = [[mark.below], [mark.above]]
    style = {**look(index), "linestyle": "none", "markersize": 9, "capsize": 4}
    axes.errorbar([mark.place], [mark.value], yerr=bars, label=mark.series, **style)


def look(index: int) -> dict[str, Any]:
    """The colour and mark of a series, by its place among them; used colours get other marks."""
    mark = MARKS[(index + index // len(COLOURS)) % len(MARKS)]
    return {"color": COLOURS[index % len(COLOURS)], "marker": mark}


def new_figure(title: str, width: float = 18, height: float = 5.5) -> Figure:
    """A figure with a title above its panels; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=15, parse_math=False)
    return figure


def name_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Title, names of both axes, and a grid."""
    axes.set_title(title, fontsize=13)
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path, legend: Axes | None = None) -> None:
    """Write a PNG file; ``legend``: the panel whose series are named beside all panels."""
    if legend:
        handles, names = legend.get_legend_handles_labels()
        unique = dict(zip(names, handles, strict=True))
        style: dict[str, Any] = {"loc": "outside right center", "frameon": False}
        figure.legend(list(unique.values()), list(unique), fontsize=12, **style)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format="png")

"""Pictures of tables, legible in a talk and without colour vision: curves, quality, cost."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

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


#: A series, its costs, its value, and half of its error bar.
_Point = tuple[str, Row, float, float]


def plot(
    summaries: Sequence[Row], curves: Mapping[str, Row], path: Path, title: str
) -> None:
    """Write a picture of learning curves, BLEU against size, and BLEU against cache.

    ``summaries``: what table.json holds; ``curves``: label -> what metrics.json holds.
    """
    figure = new_figure(title)
    left, *panels = figure.subplots(1, 3)
    for index, (name, metrics) in enumerate(curves.items()):
        updates, losses = np.reshape(metrics["valid"], (-1, 2)).T
        left.plot(updates, losses, label=name, **look(index))
    name_axes(left, "Learning curves", "updates", "validation loss (bits per subword)")
    points: list[_Point] = []
    for name, summary in zip(curves, summaries, strict=True):
        points.append((name, summary, summary["bleu"], summary["bleu_confidence"]))
    _draw_at_costs(panels, points, "BLEU (bars: 95% bootstrap)")
    save(figure, path, legend=left)


def plot_perplexity(rows: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of causal models: nats a subword against attention parameters and cache.

    ``rows``: of `language_table.perplexity_block`.
    """
    figure = new_figure(title)
    panels = figure.subplots(1, 2)
    points: list[_Point] = []
    for row in rows:
        bar = deviation(row["nats"]) or 0.0
        points.append((row["attention"], row, statistics.mean(row["nats"]), bar))
    _draw_at_costs(panels, points, "nats per subword (bars: standard deviation)")
    save(figure, path, legend=panels[0])


def _draw_at_costs(panels: Iterable[Axes], points: Sequence[_Point], name: str) -> None:
    """Draw values over each cost from 0; those at one cost stand side by side."""
    for axes, (cost, (label, unit)) in zip(panels, _COSTS.items(), strict=True):
        step = _APART * max(costs[cost] / unit for _, costs, _, _ in points)
        taken: list[float] = []
        for index, (series, costs, value, bar) in enumerate(points):
            place = costs[cost] / unit
            while any(abs(place - other) < step for other in taken):
                place += step
            taken.append(place)
            _draw(axes, series, [place], [value], [bar], index)
        axes.set_xlim(0, 1.15 * max(taken))
        name_axes(axes, "Quality", label, name)


def plot_rows(summaries: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of several rows: BLEU of each cell."""
    scores: dict[str, dict[str, tuple[float, float]]] = {}
    for summary in summaries:
        of_kind = scores.setdefault(summary["attention"], {})
        of_kind[summary["row"]] = (summary["bleu"], summary["bleu_confidence"])
    _plot_categories(scores, path, title, "BLEU (bars: 95% bootstrap)")


def plot_tasks(
    scores: Mapping[str, Mapping[str, Sequence[float]]], path: Path, title: str
) -> None:
    """Write a picture of language models; ``scores``: kind -> task -> scores of the seeds."""
    with_bars: dict[str, dict[str, tuple[float, float]]] = {}
    for kind, tasks in scores.items():
        with_bars[kind] = {}
        for task, values in tasks.items():
            with_bars[kind][task] = (statistics.mean(values), deviation(values) or 0.0)
    _plot_categories(with_bars, path, title, "score (bars: standard deviation of seeds)")


def _plot_categories(
    scores: Mapping[str, Mapping[str, tuple[float, float]]],
    path: Path,
    title: str,
    name: str,
) -> None:
    """Scores of each category with their bars, the series side by side."""
    figure = new_figure(title)
    axes = figure.subplots()
    categories = list(dict.fromkeys(each for of_one in scores.values() for each in of_one))
    for index, (series, of_one) in enumerate(scores.items()):
        beside = 0.6 * ((index + 0.5) / len(scores) - 0.5)
        places = [categories.index(category) + beside for category in of_one]
        values, bars = zip(*of_one.values(), strict=True)
        _draw(axes, series, places, values, bars, index)
    axes.set_xticks(range(len(categories)), categories)
    name_axes(axes, "", "", name)
    save(figure, path, legend=axes)


def _draw(
    axes: Axes,
    series: str,
    places: Sequence[float],
    values: Sequence[float],
    bars: Sequence[float],
    index: int,
) -> None:
    style = {**look(index), "linestyle": "none", "markersize": 9, "capsize": 4}
    axes.errorbar(places, values, yerr=bars, label=series, **style)


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
        style: dict[str, Any] = {"loc": "outside right center", "frameon": False}
        figure.legend(*legend.get_legend_handles_labels(), fontsize=12, **style)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format="png")

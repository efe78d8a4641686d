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

#: Okabe and Ito's, which differ with every kind of colour vision.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#8C8C00", "#7F7F7F"),
)
MARKS = "os^DvPX<>"
DPI = 200
#: The least distance of two marks, as a share of the axis.
_APART = 0.03
#: Costs -> their names on an axis, and the unit they are shown in.
_COSTS = {
    "attention_parameters": ("attention parameters (millions)", 1e6),
    "kv_bytes_per_token": ("key/value cache (KiB per generated token)", 1024),
}
_BLEU = "BLEU (bars: 95% bootstrap)"
#: A series, its place or category, its value, and half of its error bar.
_Point = tuple[str, Any, float, float]


def plot(rows: Sequence[Row], curves: Mapping[str, Row], path: Path, title: str) -> None:
    """Write a picture of learning curves, BLEU against size, and BLEU against cache.

    ``rows``: what table.json holds; ``curves``: label -> what metrics.json holds.
    """
    figure = new_figure(title)
    left, *panels = figure.subplots(1, 3)
    for index, (name, metrics) in enumerate(curves.items()):
        updates, losses = np.reshape(metrics["valid"], (-1, 2)).T
        left.plot(updates, losses, label=name, **look(index))
    name_axes(left, "updates", "validation loss (bits per subword)")
    named = zip(curves, rows, strict=True)
    points = [(name, row, row["bleu"], row["bleu_confidence"]) for name, row in named]
    _draw_at_costs(panels, points, _BLEU)
    save(figure, path, legend=left)


def plot_perplexity(rows: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of causal models: nats a subword against attention parameters and cache."""
    figure = new_figure(title)
    panels = figure.subplots(1, 2)
    points = [(row["attention"], row, *_of_seeds(row["nats"])) for row in rows]
    _draw_at_costs(panels, points, "nats per subword (bars: standard deviation)")
    save(figure, path, legend=panels[0])


def _draw_at_costs(panels: Iterable[Axes], points: Sequence[_Point], name: str) -> None:
    """Draw values over each cost of rows from 0; those at one cost stand side by side."""
    for axes, (cost, (label, unit)) in zip(panels, _COSTS.items(), strict=True):
        step = _APART * max(row[cost] / unit for _, row, *_ in points)
        beside: dict[float, _Point] = {}
        for series, row, value, bar in points:
            place = row[cost] / unit
            while any(abs(place - other) < step for other in beside):
                place += step
            beside[place] = (series, place, value, bar)
        _draw(axes, list(beside.values()), label, name)
        axes.set_xlim(0, 1.15 * max(beside))


def plot_rows(rows: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of several rows: BLEU of each cell."""
    points = []
    for row in rows:
        points.append((row["attention"], row["row"], row["bleu"], row["bleu_confidence"]))
    _plot_categories(points, path, title, _BLEU)


def plot_tasks(rows: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of language models' scores, task by task."""
    points = []
    for row in rows:
        for task, values in row["scores"].items():
            points.append((row["attention"], task, *_of_seeds(values)))
    _plot_categories(points, path, title, "score (bars: standard deviation of seeds)")


def _of_seeds(values: Sequence[float]) -> tuple[float, float]:
    return statistics.mean(values), deviation(values) or 0.0


def _plot_categories(points: Sequence[_Point], path: Path, title: str, name: str) -> None:
    """Draw values of each category, the series side by side."""
    figure = new_figure(title)
    axes = figure.subplots()
    series = list(dict.fromkeys(each for each, *_ in points))
    categories = list(dict.fromkeys(category for _, category, *_ in points))
    beside = []
    for each, category, value, bar in points:
        apart = 0.6 * ((series.index(each) + 0.5) / len(series) - 0.5)
        beside.append((each, categories.index(category) + apart, value, bar))
    _draw(axes, beside, "", name)
    axes.set_xticks(range(len(categories)), categories)
    save(figure, path, legend=axes)


def _draw(axes: Axes, points: Sequence[_Point], x: str, y: str) -> None:
    """Draw series of points with bars; ``x`` and ``y``: names of the axes."""
    for index, series in enumerate(dict.fromkeys(name for name, *_ in points)):
        of_series = [point[1:] for point in points if point[0] == series]
        places, values, bars = zip(*of_series, strict=True)
        style = {**look(index), "linestyle": "none", "markersize": 9, "capsize": 4}
        axes.errorbar(places, values, yerr=bars, label=series, **style)
    name_axes(axes, x, y)


def look(index: int) -> dict[str, Any]:
    """The colour and mark of a series, by its place among them; used colours get other marks."""
    mark = MARKS[(index + index // len(COLOURS)) % len(MARKS)]
    return {"color": COLOURS[index % len(COLOURS)], "marker": mark}


def new_figure(title: str, width: float = 18, height: float = 5.5) -> Figure:
    """A figure with a title above its panels; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=15, parse_math=False)
    return figure


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Names of both axes, and a grid."""
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

"""Plots of learning curves, and of quality against cost, legible without colour vision."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.report.table import Row, deviation

#: matplotlib's settings, among them the colour and marker of each series.
STYLE = Path(__file__).with_name("plots.mplstyle")
#: The minimum distance of two markers, as a share of the largest cost.
_MIN_DISTANCE = 0.03
#: Name of a cost in table.json -> label of its axis, and the unit of the axis.
_COSTS = {
    "attention_parameters": ("attention parameters (millions)", 1e6),
    "kv_bytes_per_token": ("key/value cache (KiB per generated token)", 1024),
}
BLEU = "BLEU (bars: 95% bootstrap)"
#: Name of the series, position, value, half the length of the error bar. The position is a number
#: on the x-axis, or what determines it: a row of table.json (by its costs) or a category's name.
_Point = tuple[str, Any, float, float]


@contextmanager
def picture(
    path: Path, title: str, width: float = 18, height: float = 5.5
) -> Iterator[Figure]:
    """Yield a figure (sizes in inches), then write it as PNG with the legend of its first panel."""
    with rc_context(fname=STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(title)
        yield figure
        handles, labels = figure.axes[0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside right center", frameon=False)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png")


def plot_translation(
    rows: Sequence[Row], curves: Mapping[str, Row], path: Path, title: str
) -> None:
    """Plot learning curves (label -> metrics.json), and BLEU against each cost."""
    with picture(path, title) as figure:
        left, *panels = figure.subplots(1, 3)
        for name, metrics in curves.items():
            updates, losses = np.reshape(metrics["valid"], (-1, 2)).T
            left.plot(updates, losses, label=name)
        left.set(xlabel="updates", ylabel="validation loss (bits per subword)")
        named = zip(curves, rows, strict=True)
        points = [(name, row, row["bleu"], row["bleu_confidence"]) for name, row in named]
        _draw_at_costs(panels, points, BLEU)


def plot_perplexity(rows: Sequence[Row], path: Path, title: str) -> None:
    """Plot the loss of causal models against attention parameters and against cache."""
    with picture(path, title) as figure:
        points = [(row["attention"], row, *_mean_and_bar(row["nats"])) for row in rows]
        label = "nats per subword (bars: standard deviation)"
        _draw_at_costs(figure.subplots(1, 2), points, label)


def _draw_at_costs(panels: Iterable[Axes], points: Sequence[_Point], y: str) -> None:
    """Draw one panel for each cost; a marker that would cover another one moves to the right."""
    for axes, (cost, (label, unit)) in zip(panels, _COSTS.items(), strict=True):
        step = _MIN_DISTANCE * max(row[cost] / unit for _, row, *_ in points)
        point_at: dict[float, _Point] = {}
        for series, row, value, bar in points:
            x = row[cost] / unit
            while any(abs(x - other) < step for other in point_at):
                x += step
            point_at[x] = (series, x, value, bar)
        _draw(axes, list(point_at.values()), label, y)
        axes.set_xlim(0, 1.15 * max(point_at))


def plot_tasks(rows: Sequence[Row], path: Path, title: str) -> None:
    """Plot the scores of language models, task by task."""
    points = []
    for row in rows:
        for task, values in row["scores"].items():
            points.append((row["attention"], task, *_mean_and_bar(values)))
    plot_categories(points, path, title, "score (bars: standard deviation of seeds)")


def _mean_and_bar(values: Sequence[float]) -> tuple[float, float]:
    return statistics.mean(values), deviation(values) or 0.0


def plot_categories(points: Sequence[_Point], path: Path, title: str, y: str) -> None:
    """Plot values by category; within a category the series stand side by side."""
    all_series = list(dict.fromkeys(series for series, *_ in points))
    categories = list(dict.fromkeys(category for _, category, *_ in points))
    placed = []
    for series, category, value, bar in points:
        offset = 0.6 * ((all_series.index(series) + 0.5) / len(all_series) - 0.5)
        placed.append((series, categories.index(category) + offset, value, bar))
    with picture(path, title) as figure:
        axes = figure.subplots()
        _draw(axes, placed, "", y)
        axes.set_xticks(range(len(categories)), categories)


def _draw(axes: Axes, points: Sequence[_Point], x: str, y: str) -> None:
    """Draw the points of each series with error bars; ``x`` and ``y`` label the axes."""
    for series in dict.fromkeys(name for name, *_ in points):
        of_series = [point for point in points if point[0] == series]
        _, positions, values, bars = zip(*of_series, strict=True)
        style: dict[str, Any] = {"linestyle": "none", "markersize": 9, "capsize": 4}
        axes.errorbar(positions, values, yerr=bars, label=series, **style)
    axes.set(xlabel=x, ylabel=y)

"""Pictures of tables, legible in a talk and without colour vision: curves, quality, cost."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from cycler import cycler
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.report.table import Row, deviation

#: Okabe and Ito's, which differ with every kind of colour vision.
_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#8C8C00", "#7F7F7F"),
)
#: Used colours get other marks.
LOOKS = cycler(color=_COLOURS * 2, marker="os^DvPX<>s^DvPX<>o")
_STYLE: Any = {
    "axes.prop_cycle": LOOKS,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 12,
    "grid.alpha": 0.3,
    "savefig.dpi": 200,
    "text.parse_math": False,
}
#: The least distance of two marks, as a share of the axis.
_APART = 0.03
#: Costs -> their names on an axis, and the unit they are shown in.
_COSTS = {
    "attention_parameters": ("attention parameters (millions)", 1e6),
    "kv_bytes_per_token": ("key/value cache (KiB per generated token)", 1024),
}
BLEU = "BLEU (bars: 95% bootstrap)"
#: A series, its place or category, its value, and half of its error bar.
_Point = tuple[str, Any, float, float]


@contextmanager
def picture(
    path: Path, title: str, width: float = 18, height: float = 5.5
) -> Iterator[Figure]:
    """Write a figure (sizes in inches) as PNG; its first panel names the series of all."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(title)
        yield figure
        series = figure.axes[0].get_legend_handles_labels()
        if series[0]:
            figure.legend(*series, loc="outside right center", frameon=False)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png")


def plot(rows: Sequence[Row], curves: Mapping[str, Row], path: Path, title: str) -> None:
    """Write a picture of learning curves (label -> metrics.json), and BLEU against costs."""
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
    """Write a picture of causal models: nats a subword against attention parameters and cache."""
    with picture(path, title) as figure:
        points = [(row["attention"], row, *_of_seeds(row["nats"])) for row in rows]
        name = "nats per subword (bars: standard deviation)"
        _draw_at_costs(figure.subplots(1, 2), points, name)


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


def plot_tasks(rows: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of language models' scores, task by task."""
    points = []
    for row in rows:
        for task, values in row["scores"].items():
            points.append((row["attention"], task, *_of_seeds(values)))
    plot_categories(points, path, title, "score (bars: standard deviation of seeds)")


def _of_seeds(values: Sequence[float]) -> tuple[float, float]:
    return statistics.mean(values), deviation(values) or 0.0


def plot_categories(points: Sequence[_Point], path: Path, title: str, name: str) -> None:
    """Draw values of each category, the series side by side."""
    series = list(dict.fromkeys(each for each, *_ in points))
    categories = list(dict.fromkeys(category for _, category, *_ in points))
    beside = []
    for each, category, value, bar in points:
        apart = 0.6 * ((series.index(each) + 0.5) / len(series) - 0.5)
        beside.append((each, categories.index(category) + apart, value, bar))
    with picture(path, title) as figure:
        axes = figure.subplots()
        _draw(axes, beside, "", name)
        axes.set_xticks(range(len(categories)), categories)


def _draw(axes: Axes, points: Sequence[_Point], x: str, y: str) -> None:
    """Draw series of points with bars; ``x`` and ``y``: names of the axes."""
    for series in dict.fromkeys(name for name, *_ in points):
        own = [point for point in points if point[0] == series]
        _, places, values, bars = zip(*own, strict=True)
        style: dict[str, Any] = {"linestyle": "none", "markersize": 9, "capsize": 4}
        axes.errorbar(places, values, yerr=bars, label=series, **style)
    axes.set(xlabel=x, ylabel=y)

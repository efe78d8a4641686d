"""Plots of learning curves, of scores with intervals, and of quality against cost."""

import math
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.report.looks import LOOKS, distinct_looks, look
from fairseq_mhe.report.table import Values, deviation

STYLE = Path(__file__).with_name("plots.mplstyle")
#: Width of every picture, in inches; see `STYLE`.
WIDTH = 8.3
#: Letters of a title that fit into a line.
_TITLE_WIDTH = 88
#: Name of a cost in table.json -> label of its axis, and the unit of the axis.
_COSTS = {
    "attention_parameters": ("attention parameters (millions)", 1e6),
    "total_parameters": ("all parameters (millions)", 1e6),
    "kv_bytes_per_token": ("key/value cache (KiB per generated token)", 1024),
}
#: The share of a learning curve that is left out: its fall would hide the differences.
_HIDDEN_SHARE = 0.4
_SD = "bars: sd over seeds"


@dataclass(frozen=True)
class Point:
    """A value with its error bar from ``low`` to ``high``; the bar is absent if they are equal."""

    name: str
    value: float
    low: float
    high: float
    kind: str  # determines colour and marker
    group: str = ""  # heading in a list of points
    seeds: Sequence[float] = ()  # values to draw as dots

    @property
    def bars(self) -> np.ndarray | None:
        """The lengths of the bar below and above the value: (2, 1)."""
        if self.low == self.high:
            return None
        return np.array([[self.value - self.low], [self.high - self.value]])


def mean_point(name: str, values: Sequence[float], kind: str, group: str = "") -> Point:
    """Return the point of a mean over seeds, with its standard deviation as error bar."""
    mean = statistics.mean(values)
    bar = deviation(values) or 0.0
    dots = values if len(values) > 1 else ()
    return Point(name, mean, mean - bar, mean + bar, kind, group, dots)


@contextmanager
def picture(path: Path, title: str, height: float = 3.6) -> Iterator[Figure]:
    """Yield a figure of a height in inches, then write it as PNG."""
    with rc_context(fname=STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(textwrap.fill(title, _TITLE_WIDTH))
        yield figure
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png")


def plot_translation(
    rows: Sequence[Values], curves: Mapping[str, Sequence[Values]], path: Path, title: str
) -> None:
    """Plot PRR (without a baseline BLEU), and learning curves (label -> metrics.json of seeds)."""
    trained = {}
    for name, of_seeds in curves.items():
        if found := [np.array(one["valid"]) for one in of_seeds if one["valid"]]:
            trained[name] = found
    with picture(path, title, max(3.2, 0.24 * len(rows) + 1.4)) as figure:
        panels = figure.subplots(1, 2 if trained else 1, squeeze=False)[0]
        _draw_scores(panels[-1], rows)
        if trained:
            _draw_curves(panels[0], trained)


def _draw_scores(axes: Axes, rows: Sequence[Values]) -> None:
    """Draw each row's PRR with its 95% interval, or its BLEU if no row is compared."""
    several = len({row["row"] for row in rows}) > 1
    compared = any(row["prr_low"] is not None for row in rows)
    points = []
    for row in rows:
        kind, group = row["attention"], row["row"] if several else ""
        if compared:
            if row["prr"] is not None:
                points.append(prr_point(kind, row, kind, group))
        else:
            value, bar = row["bleu"], row["bleu_confidence"]
            points.append(Point(kind, value, value - bar, value + bar, kind, group))
    if compared:
        axes.axvline(100, color="#BBBBBB", linewidth=1, zorder=0)
    name = "PRR, % of mha's BLEU" if compared else "BLEU"
    draw_list(axes, points, f"{name} (bars: 95% interval)", ".1f")


def prr_point(name: str, row: Values, kind: str, group: str = "") -> Point:
    """Return a row's PRR with its 95% interval; the baseline has none."""
    prr = math.nan if row.get("prr") is None else row["prr"]
    low, high = row.get("prr_low"), row.get("prr_high")
    if low is None or high is None:
        low = high = prr
    return Point(name, prr, low, high, kind, group)


def _draw_curves(axes: Axes, curves: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Draw the last part of each learning curve; a curve is (validations, 2)."""
    all_curves = [curve for of_kind in curves.values() for curve in of_kind]
    start = float(f"{_HIDDEN_SHARE * max(curve[-1, 0] for curve in all_curves):.1g}")
    if min(np.sum(curve[:, 0] >= start) for curve in all_curves) < 2:
        start = 0.0  # a training of few validations
    for name, of_kind in curves.items():
        style: dict[str, Any] = {**look(name), "markersize": 3, "linewidth": 1}
        for number, curve in enumerate(of_kind):
            updates, losses = curve[curve[:, 0] >= start].T
            label = name if number == 0 else None
            axes.plot(updates, losses, label=label, **style)
    axes.set_xlim(left=start)
    axes.legend(ncols=1 + len(curves) // 10, fontsize="small")
    axes.set_xlabel(f"updates, from {start:,.0f}" if start else "updates")
    lines = "\na line for each seed" if len(all_curves) > len(curves) else ""
    say_cut(axes.yaxis, f"validation loss (bits per subword){lines}")


def draw_list(
    axes: Axes, points: Sequence[Point], label: str, form: str, named: bool = True
) -> None:
    """Draw one line for each point, from top to bottom, below the headings of their groups.

    ``form`` formats the value beside a point's name; without ``named`` the value stands alone.
    """
    lines: list[int] = []
    texts: list[str] = []
    headings: list[int] = []
    group = ""
    line = 0
    for point in points:
        if point.group != group:
            group = point.group
            headings.append(len(lines))
            lines.append(line)
            texts.append(group if named else "")
            line += 1
        style: dict[str, Any] = {"linestyle": "none", **look(point.kind)}
        axes.errorbar(point.value, line, xerr=point.bars, **style)
        axes.plot(
            point.seeds, [line] * len(point.seeds), "|", color="#333333", markersize=6
        )
        value = "-" if math.isnan(point.value) else f"{point.value:{form}}"
        lines.append(line)
        texts.append(f"{point.name}   {value}" if named else value)
        line += 1
    axes.set_yticks(lines, texts)
    for heading in headings:
        axes.get_yticklabels()[heading].set_fontweight("bold")
    axes.set_ylim(line - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    say_cut(axes.xaxis, label)


def plot_tasks(
    rows: Sequence[Values], path: Path, title: str, commonest: Mapping[str, float | None]
) -> None:
    """Plot the scores of language models, task by task, beside the commonest label's."""
    points = []
    tasks = list(rows[0]["scores"])
    for task in tasks:
        for row in rows:
            kind = row["attention"]
            points.append(mean_point(kind, row["scores"][task], kind, task))
        score = commonest.get(task)
        if score is not None:
            points.append(mean_point("commonest label", [score], "", task))
    several = any(point.seeds for point in points)
    label = f"score, % ({_SD}; ticks: seeds)" if several else "score, %"
    lines = len(points) + len(tasks)
    with picture(path, title, max(3.0, 0.2 * lines + 1.2)) as figure:
        draw_list(figure.subplots(), points, label, ".1f")


def plot_perplexity(rows: Sequence[Values], path: Path, title: str) -> None:
    """Plot the loss of causal models against attention parameters and against cache."""
    points = [mean_point(row["attention"], row["nats"], row["attention"]) for row in rows]
    costs = ("attention_parameters", "kv_bytes_per_token")
    plot_costs(points, rows, path, title, "nats per subword", costs)


def plot_costs(
    points: Sequence[Point],
    rows: Sequence[Values],
    path: Path,
    title: str,
    label: str = "validation loss (bits per subword)",
    costs: Sequence[str] = ("kv_bytes_per_token", "total_parameters"),
) -> None:
    """Plot values against costs; ``rows`` hold the costs of the ``points``, in the same order.

    A cost that is the same for all within 1% has no panel, unless it is the first. If no value is
    finite, there is nothing to show, and no picture.
    """
    finite = [n for n, point in enumerate(points) if math.isfinite(point.value)]
    if not finite:
        return
    points = [points[n] for n in finite]
    costs = [
        cost
        for cost in costs
        if cost == costs[0] or _differs([rows[n][cost] for n in finite])
    ]
    if any(point.low < point.high for point in points):
        label += f"\n{_SD}"
    with picture(path, title, 4.6) as figure:
        panels = figure.subplots(1, len(costs), sharey=True, squeeze=False)[0]
        for axes, cost in zip(panels, costs, strict=True):
            name, unit = _COSTS[cost]
            positions = [rows[n][cost] / unit for n in finite]
            styles = distinct_looks([point.kind for point in points])
            for point, x, style in zip(points, positions, styles, strict=True):
                shown = {"label": point.name, "linestyle": "none", **style}
                axes.errorbar(x, point.value, yerr=point.bars, **shown)
            if max(positions) > 2 * min(positions):
                axes.set_xlim(0, 1.1 * max(positions))
            say_cut(axes.xaxis, name)
        say_cut(panels[0].yaxis, label)
        columns = 1 + len(points) // 20
        handles = panels[0].get_legend_handles_labels()
        # In the middle of the side it does not cover the title.
        figure.legend(
            *handles, loc="outside right center", fontsize="small", ncols=columns
        )


def _differs(costs: Sequence[float]) -> bool:
    return max(costs) > 1.01 * min(costs)


def plot_study(rows: Sequence[Values], path: Path, title: str) -> None:
    """Plot the loss and the PRR of each variant of a study; rows of `study.variant_rows`."""
    losses, scores = [], []
    for row in rows:
        name, kind = row["variant"], _kind_of(row)
        losses.append(mean_point(name, row["loss_of_seeds"] or [math.nan], kind))
        scores.append(prr_point(name, row, kind))
    several = any(point.seeds for point in losses)
    bars = f"\n{_SD}; ticks: seeds" if several else ""
    intervals = any(point.low < point.high for point in scores)
    with picture(path, title, max(3.0, 0.2 * len(rows) + 1.4)) as figure:
        left, right = figure.subplots(1, 2)
        draw_list(left, losses, f"validation loss (bits per subword){bars}", ".3f")
        prr = "PRR, % of the reference's BLEU"
        if intervals:
            prr += "\nbars: 95% interval"
        draw_list(right, scores, prr, ".1f", named=False)
        right.axvline(100, color="#BBBBBB", linewidth=1, zorder=0)


def plot_study_costs(rows: Sequence[Values], path: Path, title: str) -> None:
    """Plot the loss of each trained variant of a study against cache and all parameters."""
    trained = [row for row in rows if row["loss_of_seeds"]]
    points = []
    for row in trained:
        points.append(mean_point(row["variant"], row["loss_of_seeds"], _kind_of(row)))
    plot_costs(points, trained, path, title)


def _kind_of(row: Values) -> str:
    """Return the name that determines a variant's look: its own or its kind of attention."""
    kinds = set(row["attention"].values())
    if row["variant"] in LOOKS:
        return str(row["variant"])
    return kinds.pop() if len(kinds) == 1 else "several kinds"


def say_cut(axis: Axis, label: str) -> None:
    """Label an axis, and say so if it does not begin at 0."""
    low, high = sorted(axis.get_view_interval())
    if not low <= 0 <= high:
        label += "\naxis does not begin at 0"
    axis.set_label_text(label)

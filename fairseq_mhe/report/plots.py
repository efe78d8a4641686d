"""Pictures of tables, legible in a talk and without colour vision: curves, quality, cost."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
DASHES = ("-", "--", "-.", ":")
DPI = 200
#: The least distance of two marks, as a share of the axis.
_APART = 0.03
#: Costs -> their names on an axis, and the unit they are shown in.
_COSTS = {
    "attention_parameters": ("attention parameters (millions)", 1e6),
    "kv_bytes_per_token": ("key/value cache (KiB per generated token)", 1024),
}
#: Scores of the seeds, by kind and task.
Scores = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Mark:
    """A value of a series with its error bar; ``place``: a category, or a place on the axis.

    ``hollow``: another value to compare with, drawn without filling.
    """

    series: str
    place: Any
    value: float
    below: float = 0.0
    above: float = 0.0
    hollow: float | None = None


def plot(summaries: Sequence[Row], curves: Mapping[str, Row], path: Path, title: str) -> None:
    """Write a picture of learning curves, BLEU against size, and BLEU against cache.

    ``summaries``: what table.json holds; ``curves``: label -> what metrics.json holds.
    """
    figure = new_figure(title)
    left, *panels = figure.subplots(1, 3)
    for index, (name, metrics) in enumerate(curves.items()):
        updates = [update for update, _ in metrics["valid"]]
        losses = [loss for _, loss in metrics["valid"]]
        left.plot(updates, losses, DASHES[index % len(DASHES)], label=name, **look(index))
    name_axes(left, "Learning curves", "updates", "validation loss (bits per subword)")
    for axes, (cost, (label, unit)) in zip(panels, _COSTS.items(), strict=True):
        marks = []
        for series, summary in zip(curves, summaries, strict=True):
            bar = summary["bleu_confidence"]
            marks.append(Mark(series, summary[cost] / unit, summary["bleu"], bar, bar))
        draw_front(axes, [(mark.place, mark.value) for mark in marks])
        _draw_at_costs(axes, marks)
        name_axes(axes, "Quality", label, "BLEU (bars: 95% bootstrap; grey: Pareto front)")
    add_legend(figure, left)
    save(figure, path)


def plot_rows(summaries: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of several rows: BLEU and PRR of each cell, and the paper's."""
    bleus, shares = [], []
    for summary in summaries:
        kind, row, bar = summary["attention"], summary["row"], summary["bleu_confidence"]
        bleus.append(Mark(kind, row, summary["bleu"], bar, bar, summary["paper_bleu"]))
        if summary["p_value"] is not None:
            prr = summary["prr"]
            below = max(0.0, prr - summary["prr_low"])
            above = max(0.0, summary["prr_high"] - prr)
            shares.append(Mark(kind, row, prr, below, above, summary["paper_prr"]))
    hollow = "; hollow: the paper's" if any(mark.hollow for mark in bleus) else ""
    _draw_score_and_share(path, title, bleus, shares, f"bars: 95% bootstrap{hollow}")


def plot_tasks(scores: Scores, path: Path, title: str) -> None:
    """Write a picture of language models: scores of tasks, and in percent of mha's."""
    marks, shares = [], []
    for kind, of_kind in scores.items():
        for task, values in of_kind.items():
            mean, bar = statistics.mean(values), deviation(values) or 0.0
            marks.append(Mark(kind, task, mean, bar, bar))
            base = statistics.mean(scores["mha"][task]) if "mha" in scores else 0.0
            if kind != "mha" and base > 0:  # a correlation of chance is 0
                bar = 100 * bar / base
                shares.append(Mark(kind, task, 100 * mean / base, bar, bar))
    _draw_score_and_share(path, title, marks, shares, "bars: standard deviation of seeds")


def _draw_score_and_share(
    path: Path, title: str, scores: Sequence[Mark], shares: Sequence[Mark], bars: str
) -> None:
    """Scores on the left, and on the right what is left of MHA's."""
    figure = new_figure(title)
    left, right = figure.subplots(1, 2)
    _draw_beside(left, scores, scores)
    _draw_beside(right, shares, scores)
    right.axhline(100, color="#BBBBBB", linewidth=2, zorder=0)
    name_axes(left, "Score", "", f"score ({bars})")
    name_axes(right, "What is left of MHA's score", "", f"PRR, % ({bars})")
    add_legend(figure, left)
    save(figure, path)


def plot_perplexity(rows: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of causal models: nats a subword against attention parameters and cache.

    ``rows``: of `language_table.perplexity_block`.
    """
    figure = new_figure(title)
    panels = figure.subplots(1, 2)
    for axes, (cost, (label, unit)) in zip(panels, _COSTS.items(), strict=True):
        marks = []
        for row in rows:
            bar, mean = deviation(row["nats"]) or 0.0, statistics.mean(row["nats"])
            marks.append(Mark(row["attention"], row[cost] / unit, mean, bar, bar))
        _draw_at_costs(axes, marks)
        name_axes(axes, "Loss", label, "nats per subword (bars: standard deviation)")
    add_legend(figure, panels[0])
    save(figure, path)


def new_figure(title: str, width: float = 18, height: float = 5.5) -> Figure:
    """A figure with a title above its panels; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=15, parse_math=False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format="png")


def look(index: int) -> dict[str, Any]:
    """The colour and mark of a series, by its place among them; used colours get other marks."""
    mark = MARKS[(index + index // len(COLOURS)) % len(MARKS)]
    return {"color": COLOURS[index % len(COLOURS)], "marker": mark}


def add_legend(figure: Figure, axes: Axes) -> None:
    """The names of the series in ``axes``, beside all panels, where they hide nothing."""
    handles, names = axes.get_legend_handles_labels()
    unique = dict(zip(names, handles, strict=True))
    place: dict[str, Any] = {"loc": "outside right center", "frameon": False, "fontsize": 12}
    figure.legend(list(unique.values()), list(unique), **place)


def _draw_at_costs(axes: Axes, marks: Sequence[Mark]) -> None:
    """Marks of one series each at their costs, from 0; those at one cost stand side by side."""
    step = _APART * max(mark.place for mark in marks)
    taken: list[float] = []
    for index, mark in enumerate(marks):
        place = mark.place
        while any(abs(place - other) < step for other in taken):
            place += step
        taken.append(place)
        _draw(axes, mark, place, index)
    axes.set_xlim(0, 1.15 * max(taken))


def _draw_beside(axes: Axes, marks: Sequence[Mark], every: Sequence[Mark]) -> None:
    """Marks above their categories, the series side by side.

    ``every``: marks of all series and categories, which panels of one figure share.
    """
    names = list(dict.fromkeys(mark.series for mark in every))
    categories = list(dict.fromkeys(mark.place for mark in every))
    for mark in marks:
        index = names.index(mark.series)
        shift = 0.6 * ((index + 0.5) / len(names) - 0.5)
        _draw(axes, mark, categories.index(mark.place) + shift, index)
    axes.set_xticks(range(len(categories)), categories)
    axes.set_xlim(-0.5, len(categories) - 0.5)


def _draw(axes: Axes, mark: Mark, place: float, index: int) -> None:
    style = {**look(index), "linestyle": "none", "markersize": 9}
    bars = [[mark.below], [mark.above]]
    axes.errorbar([place], [mark.value], yerr=bars, label=mark.series, capsize=4, **style)
    if mark.hollow:
        axes.plot([place], [mark.hollow], fillstyle="none", **style)


def draw_front(axes: Axes, points: Sequence[tuple[float, float]], sign: int = 1) -> None:
    """The Pareto front of (cost, quality) in grey; ``sign``: -1 where less is better."""
    front = pareto_front([(cost, sign * quality) for cost, quality in points])
    costs = [cost for cost, _ in front]
    values = [sign * quality for _, quality in front]
    axes.step(costs, values, where="post", color="#BBBBBB", linewidth=6, zorder=0)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, quality) points that no other one beats in both, from the cheapest to the best."""
    front: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or quality > front[-1][1]:
            front.append((cost, quality))
    return front


def name_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Title, names of both axes, and a grid."""
    axes.set_title(title, fontsize=13)
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)

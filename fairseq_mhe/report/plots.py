"""Pictures of tables, legible in a talk and without colour vision: curves, quality, cost."""

import statistics
from collections.abc import Mapping, Sequence
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

#: Name -> place on the horizontal axis, place on the vertical axis, half the error bar.
Points = Mapping[str, tuple[float, float, float]]
#: Series -> category -> value, bar below, bar above.
Series = Mapping[str, Mapping[str, tuple[float, float, float]]]


def plot(summaries: Sequence[Row], curves: Mapping[str, Row], path: Path, title: str) -> None:
    """Write a picture of learning curves, BLEU against size, and BLEU against cache.

    ``summaries``: what table.json holds; ``curves``: label -> what metrics.json holds.
    """
    figure = new_figure(title)
    left, middle, right = figure.subplots(1, 3)
    for index, (name, metrics) in enumerate(curves.items()):
        updates, loss = zip(*metrics["valid"], strict=True) if metrics["valid"] else ((), ())
        style = {**look(index), "linestyle": DASHES[index % len(DASHES)], "linewidth": 2}
        left.plot(updates, loss, label=name, markersize=5, **style)
    name_axes(left, "Learning curves", "updates", "validation loss (bits per subword)")
    size = "attention parameters (millions)"
    _bleu_against(middle, curves, summaries, "attention_parameters", 1e6)
    name_axes(middle, "Quality against size", size, "BLEU (bars: 95% bootstrap)")
    cache = "key/value cache (KiB per generated token)"
    _bleu_against(right, curves, summaries, "kv_bytes_per_token", 1024)
    name_axes(right, "Quality against cache", cache, "BLEU (grey: Pareto front)")
    add_legend(figure, right)
    save(figure, path)


def _bleu_against(
    axes: Axes, names: Mapping[str, Row], summaries: Sequence[Row], cost: str, unit: float
) -> None:
    points = {}
    for name, summary in zip(names, summaries, strict=True):
        if summary["p_value"] is not None and summary["prr"] is not None:
            name += f" ({summary['prr']:.1f}% of MHA)"
        points[name] = (summary[cost] / unit, summary["bleu"], summary["bleu_confidence"])
    draw_front(axes, [(cost, bleu) for cost, bleu, _ in points.values()])
    draw_points(axes, points)
    axes.set_xlim(left=0, right=1.3 * max(place for place, *_ in points.values()))


def plot_rows(summaries: Sequence[Row], path: Path, title: str) -> None:
    """Write a picture of several rows: BLEU and PRR of each cell, and the paper's."""
    rows = list(dict.fromkeys(summary["row"] for summary in summaries))
    kinds = dict.fromkeys(summary["attention"] for summary in summaries)
    hollow = "; hollow: the paper's" if any(each["paper_bleu"] for each in summaries) else ""
    figure = new_figure(title)
    for axes, score in zip(figure.subplots(1, 2), ("bleu", "prr"), strict=True):
        series: dict[str, dict[str, tuple[float, float, float]]] = {kind: {} for kind in kinds}
        printed: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
        for summary in summaries:
            kind, value, paper = summary["attention"], summary[score], summary[f"paper_{score}"]
            if score == "prr" and summary["p_value"] is None:
                continue
            below = above = summary["bleu_confidence"]
            if score == "prr":
                below, above = value - summary["prr_low"], summary["prr_high"] - value
            bars = value, max(0.0, below), max(0.0, above)
            series[kind][summary["row"]] = bars
            if paper:
                printed[kind][summary["row"]] = paper
        draw_beside(axes, rows, series, printed)
    left, right = figure.axes
    name_axes(left, "Quality", "row", f"BLEU (bars: 95% bootstrap{hollow})")
    _mark_whole(right, "What is left of MHA's BLEU", "row", f"bars: 95% bootstrap{hollow}")
    add_legend(figure, left)
    save(figure, path)


def plot_tasks(scores: Mapping[str, Mapping[str, Sequence[float]]], path: Path, title: str) -> None:
    """Write a picture of language models: scores of tasks, and in percent of mha's.

    ``scores``: kind -> task -> scores of the seeds.
    """
    tasks = list(next(iter(scores.values())))
    base = {task: statistics.mean(values) for task, values in scores.get("mha", {}).items()}
    series: dict[str, dict[str, tuple[float, float, float]]] = {}
    percent: dict[str, dict[str, tuple[float, float, float]]] = {}
    for kind, of_kind in scores.items():
        series[kind], percent[kind] = {}, {}
        for task, values in of_kind.items():
            mean, bar = statistics.mean(values), deviation(values) or 0.0
            series[kind][task] = mean, bar, bar
            if kind != "mha" and base.get(task, 0) > 0:  # a correlation of chance is 0
                part = 100 / base[task]
                percent[kind][task] = part * mean, part * bar, part * bar
    figure = new_figure(title)
    left, right = figure.subplots(1, 2)
    draw_beside(left, tasks, series)
    draw_beside(right, tasks, percent)
    name_axes(left, "Score", "task", "score (bars: standard deviation of seeds)")
    _mark_whole(right, "What is left of MHA's score", "task", "bars: as left, of the kind")
    add_legend(figure, left)
    save(figure, path)


def plot_perplexity(
    nats: Mapping[str, Sequence[float]], costs: Sequence[Mapping[str, int]], path: Path, title: str
) -> None:
    """Write a picture of causal models: nats a subword against attention parameters and cache.

    ``nats``: kind -> nats of the seeds; ``costs``: kind -> parameters, kind -> bytes a token.
    """
    figure = new_figure(title)
    names = ("attention parameters (millions)", "key/value cache (KiB per token)")
    sides = zip(figure.subplots(1, 2), costs, (1e6, 1024), names, strict=True)
    for axes, cost, unit, name in sides:
        points = {}
        for kind, values in nats.items():
            mean, bar = statistics.mean(values), deviation(values) or 0.0
            points[kind] = (cost[kind] / unit, mean, bar)
        draw_points(axes, points)
        name_axes(axes, "Loss", name, "nats per subword (bars: standard deviation)")
        axes.set_xlim(left=0)
    add_legend(figure, axes)
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
    """The colour and mark of a kind, by its place among them; used colours get other marks."""
    mark = MARKS[(index + index // len(COLOURS)) % len(MARKS)]
    return {"color": COLOURS[index % len(COLOURS)], "marker": mark}


def add_legend(figure: Figure, axes: Axes) -> None:
    """The names of what ``axes`` show, beside all panels, where they hide nothing."""
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=12
    )


def draw_points(axes: Axes, points: Points) -> None:
    """A mark with an error bar for each name; marks at one place stand side by side."""
    step = _APART * max(place for place, *_ in points.values())
    taken: list[float] = []
    for index, (name, (place, value, bar)) in enumerate(points.items()):
        while any(abs(place - other) < step for other in taken):
            place += step
        taken.append(place)
        style = {**look(index), "linestyle": "none", "markersize": 9, "capsize": 4}
        axes.errorbar(place, value, yerr=bar, label=name, **style)


def draw_beside(
    axes: Axes,
    categories: Sequence[str],
    series: Series,
    hollow: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Marks with error bars above each category, the series side by side.

    ``hollow``: series -> category -> another value, drawn without filling.
    """
    for index, (name, marks) in enumerate(series.items()):
        shift = 0.6 * ((index + 0.5) / len(series) - 0.5)
        style = {**look(index), "linestyle": "none", "markersize": 9}
        places = [categories.index(category) + shift for category in marks]
        values, below, above = zip(*marks.values(), strict=True) if marks else ((), (), ())
        axes.errorbar(places, values, yerr=[below, above], label=name, capsize=4, **style)
        others = (hollow or {}).get(name, {})
        places = [categories.index(category) + shift for category in others]
        axes.plot(places, list(others.values()), fillstyle="none", **style)
    axes.set_xticks(range(len(categories)), categories)
    axes.set_xlim(-0.5, len(categories) - 0.5)


def draw_front(axes: Axes, points: Sequence[tuple[float, float]], sign: int = 1) -> None:
    """The Pareto front of (cost, quality) in grey; ``sign``: -1 where less is better."""
    front = pareto_front([(cost, sign * quality) for cost, quality in points])
    costs, qualities = zip(*front, strict=True)
    values = [sign * quality for quality in qualities]
    axes.step(costs, values, where="post", color="#BBBBBB", linewidth=6, zorder=0)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, quality) points that no other one beats in both, from the cheapest to the best."""
    front: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or quality > front[-1][1]:
            front.append((cost, quality))
    return front


def _mark_whole(axes: Axes, title: str, x: str, bars: str) -> None:
    """A line at all of MHA's score."""
    axes.axhline(100, color="#BBBBBB", linewidth=2, zorder=0)
    name_axes(axes, title, x, f"PRR, % ({bars})")


def name_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Title, names of both axes, and a grid."""
    axes.set_title(title, fontsize=13)
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)

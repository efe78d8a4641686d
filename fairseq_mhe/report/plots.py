"""The picture of a table, legible in a talk and without colour vision: curves, quality, cost."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.report.results import deviation

#: Okabe and Ito's colours, told apart with every kind of colour vision, each with a mark and a dash
#: of its own.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#8C8C00", "#7F7F7F"),
)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":")
DPI = 200
#: More names than this would cover each other; the learning curves' legend has the marks.
_MOST_NAMES = 3

#: Lines of table.json.
_Summaries = Sequence[Mapping[str, Any]]
#: A label and the content of metrics.json, for each of them.
_Curves = Sequence[tuple[str, Mapping[str, Any]]]
#: Task -> scores of the seeds.
_Scores = Mapping[str, Sequence[float]]


def plot(summaries: _Summaries, curves: _Curves, output: Path, title: str) -> None:
    """Write picture.png into ``output``: learning curves, BLEU against size, BLEU against cache."""
    figure = _figure(title)
    left, middle, right = figure.subplots(1, 3)
    _learning_curves(left, curves)
    _quality_against_cost(middle, summaries, "attention_parameters", 1e6)
    size = "attention parameters (millions)"
    _label(middle, "Quality against size", size, "BLEU (bars: 95% bootstrap)")
    _quality_against_cost(right, summaries, "kv_bytes_per_token", 1024)
    cache = "key/value cache (KiB per generated token)"
    _label(right, "Quality against cache", cache, "BLEU (grey: Pareto front)")
    _save(figure, output / "picture.png")


def plot_rows(summaries: _Summaries, output: Path, title: str) -> None:
    """Write picture.png into ``output`` for several rows: BLEU and PRR of each cell.

    The summaries have the paper's numbers as ``paper_bleu`` and ``paper_prr``.
    """
    rows = list(dict.fromkeys(summary["row"] for summary in summaries))
    kinds = list(dict.fromkeys(summary["attention"] for summary in summaries))
    figure = _figure(title)
    left, right = figure.subplots(1, 2)
    _by_row(left, summaries, rows, kinds, "bleu")
    printed = any(summary["paper_bleu"] for summary in summaries)
    marks = "bars: 95% bootstrap" + ("; hollow: the paper's" if printed else "")
    _label(left, "Quality", "row", f"BLEU ({marks})")
    _by_row(right, [s for s in summaries if s["p_value"] is not None], rows, kinds, "prr")
    right.axhline(100, color="#BBBBBB", linewidth=2, zorder=0)
    _label(right, "What is left of MHA's BLEU", "row", f"PRR, % ({marks})")
    left.legend(fontsize=12, frameon=False)
    _save(figure, output / "picture.png")


def plot_tasks(found: Mapping[str, _Scores], path: Path, title: str) -> None:
    """Write the picture ``path``: scores of models by task, and in percent of mha's.

    ``found``: model -> task -> scores of the seeds.
    """
    tasks = list(next(iter(found.values())))
    figure = _figure(title)
    left, right = figure.subplots(1, 2)
    base = {task: statistics.mean(scores) for task, scores in found.get("mha", {}).items()}
    for index, (model, scores) in enumerate(found.items()):
        shift = 0.6 * ((index + 0.5) / len(found) - 0.5)
        places = [place + shift for place in range(len(tasks))]
        style = {**look(index), "linestyle": "none", "markersize": 9, "capsize": 4}
        means = [statistics.mean(scores[task]) for task in tasks]
        bars = [deviation(scores[task]) or 0.0 for task in tasks]
        left.errorbar(places, means, yerr=bars, label=model, **style)
        if model != "mha":  # and where mha is better than chance, which is 0 of a correlation
            parts = {i: 100 / base[task] for i, task in enumerate(tasks) if base.get(task, 0) > 0}
            percent = [part * means[i] for i, part in parts.items()]
            spread = [part * bars[i] for i, part in parts.items()]
            right.errorbar([places[i] for i in parts], percent, yerr=spread, **style)
    for axes in (left, right):
        axes.set_xticks(range(len(tasks)), tasks)
        axes.set_xlim(-0.5, len(tasks) - 0.5)
    right.axhline(100, color="#BBBBBB", linewidth=2, zorder=0)
    _label(left, "Score", "task", "score (bars: standard deviation of seeds)")
    _label(right, "What is left of MHA's score", "task", "PRR, % (bars: as left, of the kind)")
    left.legend(fontsize=12, frameon=False)
    _save(figure, path)


def plot_perplexity(
    nats: Mapping[str, Sequence[float]], costs: Sequence[Mapping[str, int]], path: Path
) -> None:
    """Write the picture ``path``: nats a subword against attention parameters and cache.

    ``nats``: kind -> those of the seeds; ``costs``: kind -> parameters, kind -> bytes a token.
    """
    figure = _figure("Causal language models")
    told = ("attention parameters (millions)", "key/value cache (KiB per token)")
    for axes, cost, unit, name in zip(figure.subplots(1, 2), costs, (1e6, 1024), told, strict=True):
        for index, (kind, values) in enumerate(nats.items()):
            style = {**look(index), "linestyle": "none", "markersize": 9, "capsize": 4}
            mean = statistics.mean(values)
            axes.errorbar(
                cost[kind] / unit, mean, yerr=deviation(values) or 0.0, label=kind, **style
            )
        axes.set_xlim(left=0, right=1.3 * max(cost[kind] for kind in nats) / unit)
        _label(axes, "Loss", name, "nats per subword (bars: standard deviation)")
        axes.legend(fontsize=12, frameon=False)
    _save(figure, path)


def _figure(title: str) -> Figure:
    figure = Figure(figsize=(18, 5.5), layout="constrained")
    figure.suptitle(title, fontsize=15, parse_math=False)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format="png")


def look(index: int) -> dict[str, Any]:
    """The colour and mark of a kind, by its place among them; used colours get other marks."""
    mark = MARKS[(index + index // len(COLOURS)) % len(MARKS)]
    return {"color": COLOURS[index % len(COLOURS)], "marker": mark}


def _by_row(
    axes: Axes, summaries: _Summaries, rows: Sequence[str], kinds: Sequence[str], score: str
) -> None:
    """A mark for each kind above each row's name, with its interval, and the paper's beside it."""
    for index, kind in enumerate(kinds):
        shift = 0.6 * ((index + 0.5) / len(kinds) - 0.5)
        shown = [s for s in summaries if s["attention"] == kind and s[score] is not None]
        places = [rows.index(s["row"]) + shift for s in shown]
        style = {**look(index), "linestyle": "none", "markersize": 9}
        scores = [s[score] for s in shown]
        bars = [[s["bleu_confidence"] for s in shown]] * 2
        if score == "prr":
            below = [max(0.0, s["prr"] - s["prr_low"]) for s in shown]
            above = [max(0.0, s["prr_high"] - s["prr"]) for s in shown]
            bars = [below, above]
        axes.errorbar(places, scores, yerr=bars, label=kind, capsize=4, **style)
        printed = [s[f"paper_{score}"] for s in shown]
        paper = [(x, value) for x, value in zip(places, printed, strict=True) if value]
        if paper:
            axes.plot(*zip(*paper, strict=True), fillstyle="none", **style)
    axes.set_xticks(range(len(rows)), rows)
    axes.set_xlim(-0.5, len(rows) - 0.5)


def _learning_curves(axes: Axes, curves: _Curves) -> None:
    for index, (label, metrics) in enumerate(curves):
        updates, loss = zip(*metrics["valid"], strict=True) if metrics["valid"] else ((), ())
        dash = DASHES[index % len(DASHES)]
        style = {**look(index), "linestyle": dash, "markersize": 5, "linewidth": 2}
        axes.plot(updates, loss, label=label, **style)
    _label(axes, "Learning curves", "updates", "validation loss (bits per subword)")
    axes.legend(fontsize=12, frameon=False)


def _quality_against_cost(axes: Axes, summaries: _Summaries, cost: str, unit: float) -> None:
    """BLEU of each kind against a key of table.json, in ``unit``, and the Pareto front."""
    points = [(summary[cost] / unit, summary["bleu"]) for summary in summaries]
    front = pareto_front(points)
    axes.step(*zip(*front, strict=True), where="post", color="#BBBBBB", linewidth=6, zorder=0)
    for index, (summary, point) in enumerate(zip(summaries, points, strict=True)):
        style = {**look(index), "markersize": 10, "capsize": 4, "linewidth": 1.5}
        axes.errorbar(*point, yerr=summary["bleu_confidence"], **style)
        if len(summaries) <= _MOST_NAMES:
            name = summary["attention"]
            if summary["p_value"] is not None and summary["prr"] is not None:
                name += f" ({summary['prr']:.1f}%)"  # of the baseline's BLEU
            axes.annotate(name, point, (8, 8), textcoords="offset points", fontsize=11)
    axes.set_xlim(left=0, right=1.3 * max(x for x, _ in points))


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, quality) points that no other one beats in both, from the cheapest to the best."""
    front: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or quality > front[-1][1]:
            front.append((cost, quality))
    return front


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=13)
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)

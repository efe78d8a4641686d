"""The picture: learning curves, and BLEU against parameters and cache; legible in a talk and without colour vision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fairseq_mhe.common.files import atomic_path

#: Okabe and Ito's colours, told apart with every kind of colour vision, each with a mark and a dash
#: of its own.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C8C00",
    "#7F7F7F",
)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":")
DPI = 200
#: More names than this would cover each other; the learning curves' legend has the marks.
MOST_NAMES = 3


def plot(
    summaries: Sequence[Mapping[str, Any]],
    curves: Sequence[tuple[str, Mapping[str, Any]]],
    output: Path,
    title: str,
) -> None:
    """Write picture.png into ``output``.

    Args:
        summaries: what table.json holds.
        curves: a label and the content of metrics.json, in the same order.
        title: heading.
    """
    figure = Figure(figsize=(18, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    _learning_curves(left, curves)
    _quality_against_cost(middle, summaries, "attention_parameters", 1e6)
    _label(
        middle,
        "Quality against size",
        "attention parameters (millions)",
        "BLEU (bars: 95% bootstrap)",
    )
    _quality_against_cost(right, summaries, "kv_bytes_per_token", 1024)
    _label(
        right,
        "Quality against cache",
        "key/value cache (KiB per generated token)",
        "BLEU (grey: Pareto front)",
    )
    figure.suptitle(title, fontsize=15)
    with atomic_path(output / "picture.png") as temporary:
        figure.savefig(temporary, dpi=DPI, format="png")


def plot_rows(summaries: Sequence[Mapping[str, Any]], output: Path, title: str) -> None:
    """Write picture.png into ``output`` for a table of several rows: BLEU and PRR of each row and kind.

    Args:
        summaries: what table.json holds, with the paper's numbers as ``paper_bleu`` and
        ``paper_prr``.
        output: a folder.
        title: heading.
    """
    rows, kinds = (
        list(dict.fromkeys(summary[name] for summary in summaries)) for name in ("row", "attention")
    )
    figure = Figure(figsize=(18, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _by_row(left, summaries, rows, kinds, "bleu")
    _label(left, "Quality", "row", "BLEU (bars: 95% bootstrap; hollow: the paper's)")
    _by_row(right, [s for s in summaries if s["p_value"] is not None], rows, kinds, "prr")
    right.axhline(100, color="#BBBBBB", linewidth=2, zorder=0)
    _label(
        right,
        "What is left of MHA's BLEU",
        "row",
        "PRR, % (bars: 95% bootstrap; hollow: the paper's)",
    )
    left.legend(fontsize=12, frameon=False)
    figure.suptitle(title, fontsize=15)
    with atomic_path(output / "picture.png") as temporary:
        figure.savefig(temporary, dpi=DPI, format="png")


def _by_row(
    axes: Axes,
    summaries: Sequence[Mapping[str, Any]],
    rows: Sequence[str],
    kinds: Sequence[str],
    score: str,
) -> None:
    """A mark for each kind above each row's name, with its interval, and the paper's beside it."""
    for index, kind in enumerate(kinds):
        shift = 0.6 * ((index + 0.5) / len(kinds) - 0.5)
        shown = [s for s in summaries if s["attention"] == kind and s[score] is not None]
        places = [rows.index(s["row"]) + shift for s in shown]
        style: dict[str, Any] = {
            "color": _of(COLOURS, index),
            "marker": _of(MARKS, index),
            "linestyle": "none",
            "markersize": 9,
        }
        axes.errorbar(
            places,
            [s[score] for s in shown],
            yerr=_bars(shown, score),
            label=kind,
            capsize=4,
            **style,
        )
        paper = [
            (x, s[f"paper_{score}"])
            for x, s in zip(places, shown, strict=True)
            if s[f"paper_{score}"]
        ]
        if paper:
            axes.plot(*zip(*paper, strict=True), fillstyle="none", **style)
    axes.set_xticks(range(len(rows)), rows)
    axes.set_xlim(-0.5, len(rows) - 0.5)


def _bars(shown: Sequence[Mapping[str, Any]], score: str) -> list[list[float]]:
    """The lengths of the error bars below and above."""
    if score == "bleu":
        return [[s["bleu_confidence"] for s in shown]] * 2
    return [
        [max(0.0, s["prr"] - s["prr_low"]) for s in shown],
        [max(0.0, s["prr_high"] - s["prr"]) for s in shown],
    ]


def _learning_curves(axes: Axes, curves: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    for index, (label, metrics) in enumerate(curves):
        updates, loss = zip(*metrics["valid"], strict=True) if metrics["valid"] else ((), ())
        axes.plot(
            updates,
            loss,
            color=_of(COLOURS, index),
            linestyle=_of(DASHES, index),
            marker=_of(MARKS, index),
            markersize=5,
            linewidth=2,
            label=label,
        )
    _label(axes, "Learning curves", "updates", "validation loss (bits per subword)")
    axes.legend(fontsize=12, frameon=False)


def _quality_against_cost(
    axes: Axes, summaries: Sequence[Mapping[str, Any]], cost: str, unit: float
) -> None:
    """BLEU of each kind against what it costs (a key of table.json, in ``unit``), and the Pareto front."""
    points = [(summary[cost] / unit, summary["bleu"]) for summary in summaries]
    front = pareto_front(points)
    axes.step(*zip(*front, strict=True), where="post", color="#BBBBBB", linewidth=6, zorder=0)
    for index, (summary, point) in enumerate(zip(summaries, points, strict=True)):
        axes.errorbar(
            *point,
            yerr=summary["bleu_confidence"],
            color=_of(COLOURS, index),
            marker=_of(MARKS, index),
            markersize=10,
            capsize=4,
            linewidth=1.5,
        )
        if len(summaries) <= MOST_NAMES:
            axes.annotate(_name(summary), point, (8, 8), textcoords="offset points", fontsize=11)
    axes.set_xlim(left=0, right=1.3 * max(x for x, _ in points))


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, quality) points that no other one beats in both, from the cheapest to the best."""
    front: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or quality > front[-1][1]:
            front.append((cost, quality))
    return front


def _name(summary: Mapping[str, Any]) -> str:
    """The kind, and what it retains of the baseline's BLEU."""
    retained = (
        f" ({summary['prr']:.1f}%)"
        if summary["p_value"] is not None and summary["prr"] is not None
        else ""
    )
    return f"{summary['attention']}{retained}"


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=13)
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _of(choices: Sequence[str], index: int) -> str:
    return choices[index % len(choices)]

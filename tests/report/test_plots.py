"""Pictures: values stand where they belong, names can be read, and labels promise what is there."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fairseq_mhe.attention import KINDS
from fairseq_mhe.report import plots
from fairseq_mhe.report.looks import LOOKS, look

#: Kind, loss, its standard deviation, bytes of cache, all parameters. Several costs are equal.
MODELS = [
    ("mha", 2.50, 0.02, 4096, 2_560_000),
    ("mhe_mul", 2.60, 0.02, 1024, 2_120_000),
    ("mhe_conv", 2.47, 0.01, 1024, 2_120_000),
    ("sha", 2.695, 0.01, 1024, 2_119_000),
    ("mhe_add", 2.69, 0.0, 1024, 2_120_000),
    ("collaborative", 2.575, 0.01, 2560, 2_268_000),
    ("mqa", 2.54, 0.02, 1024, 2_267_000),
    ("gqa", 2.51, 0.01, 2048, 2_365_000),
    ("skv", 2.515, 0.01, 2048, 2_365_000),
]
Draw = Callable[..., Figure]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Draw:
    """Return a function that draws a picture, and returns its figure as it was written."""
    figures: list[Figure] = []
    real = Figure.savefig

    def savefig(self: Figure, path: Path, **style: Any) -> None:
        real(self, path, **style)
        figures.append(self)

    monkeypatch.setattr(Figure, "savefig", savefig)

    def call(plot: Callable[..., None], *arguments: Any, **options: Any) -> Figure:
        plot(*arguments, path=tmp_path / "picture.png", title="A title", **options)
        FigureCanvasAgg(figures[-1]).draw()
        return figures[-1]

    return call


def markers(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Return colour -> positions of the markers in a panel."""
    found: dict[str, list[tuple[float, float]]] = {}
    for container in axes.containers:
        line = container.lines[0]
        points = zip(line.get_xdata(), line.get_ydata(), strict=True)
        found.setdefault(line.get_color(), []).extend(points)
    return found


def costs(draw: Draw) -> Figure:
    points, rows = [], []
    for kind, loss, bar, cache, parameters in MODELS:
        points.append(plots.Point(kind, loss, loss - bar, loss + bar, kind))
        rows.append({"kv_bytes_per_token": cache, "total_parameters": parameters})
    return draw(plots.plot_costs, points, rows)


def row(kind: str, prr: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    values = {"row": "tiny", "attention": kind, "bleu": 20.0, "bleu_confidence": 1.0}
    return {**values, "prr": prr, "prr_low": low, "prr_high": high}


def test_markers_stand_where_their_data_is(draw: Draw) -> None:
    """A marker beside another of the same cost was once moved: mhe_conv seemed to cost more."""
    cache, parameters = costs(draw).axes
    for kind, loss, _, kv_bytes, total in MODELS:
        colour = look(kind)["color"]
        assert (pytest.approx(kv_bytes / 1024), pytest.approx(loss)) in markers(cache)[colour]
        assert (pytest.approx(total / 1e6), pytest.approx(loss)) in markers(parameters)[colour]


def test_a_legend_names_variants_of_one_kind_with_different_markers(draw: Draw) -> None:
    names = ["mqa", "mqa-2x38", "mqa-5x19"]
    points = [plots.Point(name, 2.0, 2.0, 2.0, name) for name in names]
    rows = [{"kv_bytes_per_token": 1024, "total_parameters": 10**6}] * 3
    figure = draw(plots.plot_costs, points, rows)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    lines = [container.lines[0] for container in figure.axes[0].containers]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3


def test_an_axis_that_is_cut_says_so(draw: Draw) -> None:
    cache, parameters = costs(draw).axes
    assert cache.get_xlim()[0] == 0
    assert "axis" not in cache.get_xlabel()
    assert parameters.get_xlim()[0] > 0
    assert "axis does not begin at 0" in parameters.get_xlabel()
    assert cache.get_ylim()[0] > 0
    assert "axis does not begin at 0" in cache.get_ylabel()


def test_prr_is_drawn_with_its_interval(draw: Draw) -> None:
    rows = [row("mha", 100.0, None, None), row("mhe_mul", 97.5, 94.5, 100.5)]
    curve = {"valid": [[number, 9 - number / 500] for number in range(100, 2600, 100)]}
    learning, scores = draw(plots.plot_translation, rows, {"mha": [curve], "mhe_mul": [curve]}).axes
    assert markers(scores)[look("mhe_mul")["color"]] == [(97.5, 1)]
    (bar,) = [c.lines[2][0].get_segments()[0] for c in scores.containers if c.has_xerr]
    assert bar[:, 0].tolist() == pytest.approx([94.5, 100.5])
    assert "PRR" in scores.get_xlabel()
    # The first 40% of a training fall so far that the rest would be flat.
    assert learning.get_xlim()[0] == 1000
    assert "from 1,000" in learning.get_xlabel()
    assert [text.get_text() for text in learning.get_legend().get_texts()] == ["mha", "mhe_mul"]
    without_baseline = draw(plots.plot_translation, [row("mhe_mul", None, None, None)], {})
    assert "BLEU" in without_baseline.axes[0].get_xlabel()
    assert "PRR" not in without_baseline.axes[0].get_xlabel()


def test_a_diverged_training_leaves_the_others(draw: Draw) -> None:
    """The loss of a diverged training is NaN, which has no place on an axis."""
    numbers = (
        ("mha", [2.0, 2.2], 3_000_000, 4096),
        ("mhe_mul", [2.5], 1_000_000, 1024),
        ("sha", [2.0, math.nan], 2_000_000, 2048),
    )
    names = ("attention", "nats", "attention_parameters", "kv_bytes_per_token")
    rows = [dict(zip(names, values, strict=True)) for values in numbers]
    parameters, cache = draw(plots.plot_perplexity, rows).axes
    assert markers(parameters)[look("mha")["color"]] == [(3.0, pytest.approx(2.1))]
    assert markers(cache)[look("mhe_mul")["color"]] == [(1.0, 2.5)]
    assert look("sha")["color"] not in markers(cache)


def test_no_two_kinds_look_alike() -> None:
    assert set(KINDS) <= set(LOOKS)
    assert len(set(LOOKS.values())) == len(LOOKS)
    assert look("mqa-2x38") == look("mqa") != look("mqa_conv")
    assert look("skv-4x19") == look("skv") != look("skv-1")

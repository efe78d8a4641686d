"""Pictures: names and markers are told apart, also beside a diverged training."""

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

    def call(
        plot: Callable[..., None], *arguments: Any, title: str = "A title", **options: Any
    ) -> Figure:
        plot(*arguments, path=tmp_path / "picture.png", title=title, **options)
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


def test_a_legend_names_variants_of_one_kind_with_different_markers(draw: Draw) -> None:
    names = ["mqa", "mqa-2x38", "mqa-5x19"]
    points = [plots.Point(name, 2.0, 2.0, 2.0, name) for name in names]
    rows = [{"kv_bytes_per_token": 1024, "total_parameters": 10**6}] * 3
    figure = draw(plots.plot_costs, points, rows)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    lines = [container.lines[0] for container in figure.axes[0].containers]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3


def test_more_variants_of_one_kind_than_markers_are_drawn(draw: Draw) -> None:
    """A study once ended in an error after all its trainings."""
    points = [plots.Point(f"mqa-{n}", 2.0, 2.0, 2.0, f"mqa-{n}") for n in range(30)]
    rows = [{"kv_bytes_per_token": 1024, "total_parameters": 10**6}] * 30
    figure = draw(plots.plot_costs, points, rows)
    assert len(figure.axes[0].containers) == 30


def test_a_long_title_is_whole_and_covered_by_nothing(draw: Draw) -> None:
    points = [plots.Point(f"mqa-{n}", 2.0, 2.0, 2.0, f"mqa-{n}") for n in range(18)]
    costs = [{"kv_bytes_per_token": 1024 + n, "total_parameters": 10**6} for n in range(18)]
    figure = draw(plots.plot_costs, points, costs, title="A long question? " * 8)
    title = figure._suptitle.get_window_extent()
    (legend,) = figure.legends
    assert figure.bbox.x0 < title.x0 < title.x1 < figure.bbox.x1
    assert not title.overlaps(legend.get_window_extent())


def test_a_cost_that_all_share_has_no_panel(draw: Draw) -> None:
    """Its axis would show differences of a thousandth as if they mattered."""
    points = [plots.Point(f"mqa-{n}", 2.0, 2.0, 2.0, f"mqa-{n}") for n in range(2)]
    rows = [{"kv_bytes_per_token": 1024 * n, "total_parameters": 10**6 + n} for n in (1, 2)]
    (cache,) = draw(plots.plot_costs, points, rows).axes
    assert "cache" in cache.get_xlabel()


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


def test_a_study_whose_trainings_all_diverged_has_no_picture_of_costs(tmp_path: Path) -> None:
    """Drawing it was an error, which came before the table was written."""
    row = {"variant": "mha", "attention": {"encoder": "mha"}, "loss_of_seeds": [math.nan]}
    picture = tmp_path / "costs.png"
    plots.plot_study_costs(
        [row | {"kv_bytes_per_token": 1024, "total_parameters": 10**6}], picture, "A question?"
    )
    assert not picture.exists()


def test_no_two_kinds_look_alike() -> None:
    assert set(KINDS) <= set(LOOKS)
    assert len(set(LOOKS.values())) == len(LOOKS)
    assert look("mqa-2x38") == look("mqa") != look("mqa_conv")
    assert look("skv-4x19") == look("skv") != look("skv-1")

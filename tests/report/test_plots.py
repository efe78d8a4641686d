"""Pictures: the Pareto front against its definition, and which values are drawn where."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from matplotlib.axes import Axes

from fairseq_mhe.attention import KINDS
from fairseq_mhe.report import plots
from fairseq_mhe.report.plots import look, pareto_front, plot, plot_perplexity, plot_tasks

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1)
#: Label, place, value, bar below.
Drawn = list[tuple[str, float, float, float]]


@given(POINTS)
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    def beaten(point: tuple[int, int]) -> bool:
        return any(o != point and o[0] <= point[0] and o[1] >= point[1] for o in points)

    assert pareto_front(points) == sorted({point for point in points if not beaten(point)})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What is drawn with bars."""
    calls: Drawn = []
    real = Axes.errorbar

    def errorbar(self: Axes, x: Any, y: Any, yerr: Any = None, **style: Any) -> Any:
        calls.append((style["label"], *x, *y, *yerr[0]))
        return real(self, x, y, yerr=yerr, **style)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    return calls


@pytest.mark.parametrize(("bleu", "prr"), [(None, None), (24.8, 95.0)])
def test_the_papers_marks_are_hollow_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bleu: float | None, prr: float | None
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    scores = {
        "bleu": 20.0,
        "bleu_confidence": 1.0,
        "prr": 95.0,
        "prr_low": 94.0,
        "prr_high": 96.0,
    }
    model = {"row": "base", "attention": "mhe_mul"}
    summary = {**scores, **model, "p_value": 0.1, "paper_bleu": bleu, "paper_prr": prr}
    plots.plot_rows([summary], tmp_path / "picture.png", "title")
    for axes, printed in zip(figures[0].axes, (bleu, prr), strict=True):
        hollow = [line for line in axes.lines if line.get_fillstyle() == "none"]
        values = [value for line in hollow for value in line.get_ydata()]
        assert values == ([printed] if printed else [])
        assert ("hollow" in axes.get_ylabel()) == bool(printed)


def test_error_bars_at_one_cost_stand_side_by_side(tmp_path: Path, drawn: Drawn) -> None:
    """The cache of mha and mhe_mul is one: their bars were drawn over each other."""
    summary = {"bleu": 20.0, "bleu_confidence": 1.0, "p_value": None, "prr": None}
    summary |= {"kv_bytes_per_token": 2048, "attention_parameters": 3_000_000}
    plot(
        [summary] * 3, {key: {"valid": []} for key in "abc"}, tmp_path / "picture.png", "title"
    )
    assert len(drawn) == 6
    for panel in (drawn[:3], drawn[3:]):
        places = sorted(place for _, place, _, _ in panel)
        assert min(b - a for a, b in itertools.pairwise(places)) >= 0.029 * places[0]


def test_tasks_are_drawn_with_their_deviation_and_beside_mha(
    tmp_path: Path, drawn: Drawn
) -> None:
    scores = {
        "mha": {"cola": [0.0, 0.0], "rte": [50.0, 54.0]},
        "mhe_mul": {"cola": [3.0, 5.0], "rte": [39.0, 39.0]},
    }
    plot_tasks(scores, tmp_path / "tasks.png", "title")
    assert (tmp_path / "tasks.png").read_bytes().startswith(b"\x89PNG")
    cola, rte, new_cola, new_rte, share = drawn
    assert [(name, value) for name, _, value, _ in drawn[:4]] == [
        *(("mha", 0.0), ("mha", 52.0)),
        *(("mhe_mul", 4.0), ("mhe_mul", 39.0)),
    ]
    assert (cola[3], rte[3]) == pytest.approx((0, 8**0.5), abs=5e-5)  # of four digits
    assert cola[1] < new_cola[1] < rte[1] < new_rte[1]  # side by side
    assert share[:3] == ("mhe_mul", new_rte[1], 75.0)  # none of cola, where mha knows nothing


def test_perplexity_is_drawn_against_size_and_cache(tmp_path: Path, drawn: Drawn) -> None:
    """A training that diverged has no deviation."""
    numbers = (
        ("mha", [2.0, 2.2], 3_000_000, 4096),
        ("mhe_mul", [2.5], 1_000_000, 1024),
        ("sha", [2.0, math.nan], 2_000_000, 2048),
    )
    names = ("attention", "nats", "attention_parameters", "kv_bytes_per_token")
    rows = [dict(zip(names, values, strict=True)) for values in numbers]
    plot_perplexity(rows, tmp_path / "loss.png", "title")
    assert (tmp_path / "loss.png").is_file()
    assert [place for _, place, _, _ in drawn] == [3.0, 1.0, 2.0, 4.0, 1.0, 2.0]
    assert [value for _, _, value, _ in drawn[:2]] == [2.1, 2.5]
    assert [bar for *_, bar in drawn[:3]] == pytest.approx([0.1414, 0.0, 0.0])


def test_every_kind_has_a_look_of_its_own() -> None:
    looks = {(look(index)["color"], look(index)["marker"]) for index in range(len(KINDS))}
    assert len(looks) == len(KINDS) > 9

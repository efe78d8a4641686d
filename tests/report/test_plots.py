"""The Pareto front of the picture against its definition; the points of language models'."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from matplotlib.axes import Axes

from fairseq_mhe.attention import KINDS
from fairseq_mhe.report.plots import look, pareto_front, plot_perplexity, plot_rows, plot_tasks

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1)


@given(POINTS)
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    def beaten(point: tuple[int, int]) -> bool:
        return any(o != point and o[0] <= point[0] and o[1] >= point[1] for o in points)

    assert pareto_front(points) == sorted({point for point in points if not beaten(point)})


Drawn = list[tuple[str | None, list[float], list[float], list[float]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What is drawn with bars: label, places, values, bars."""
    found: Drawn = []
    real = Axes.errorbar

    def errorbar(self: Axes, x: Any, y: Any, yerr: Any = None, **style: Any) -> Any:
        listed = [value if isinstance(value, list) else [value] for value in (x, y, yerr)]
        found.append((style.get("label"), *listed))
        return real(self, x, y, yerr=yerr, **style)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    return found


@pytest.mark.parametrize(("bleu", "prr"), [(None, None), (24.8, 95.0)])
def test_hollow_marks_are_named_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bleu: float | None, prr: float | None
) -> None:
    told: list[str] = []
    hollow: list[Any] = []
    set_ylabel, plot = Axes.set_ylabel, Axes.plot
    monkeypatch.setattr(
        Axes, "set_ylabel", lambda self, text, **more: (told.append(text), set_ylabel(self, text))
    )

    def noted(self: Axes, *points: Any, **style: Any) -> Any:
        hollow.extend(points[1])
        return plot(self, *points, **style)

    monkeypatch.setattr(Axes, "plot", noted)
    scores = {"bleu": 20.0, "bleu_confidence": 1.0, "prr": 95.0, "prr_low": 94.0, "prr_high": 96.0}
    whose = {"row": "base", "attention": "mhe_mul"}
    summary = {**scores, **whose, "p_value": 0.1, "paper_bleu": bleu, "paper_prr": prr}
    plot_rows([summary], tmp_path, "title")
    assert hollow == ([bleu, prr] if bleu else [])
    assert ["hollow" in text for text in told] == [bool(hollow)] * 2


def test_tasks_are_drawn_with_their_deviation_and_beside_mha(tmp_path: Path, drawn: Drawn) -> None:
    found = {
        "mha": {"cola": [0.0, 0.0], "rte": [50.0, 54.0]},
        "mhe_mul": {"cola": [3.0, 5.0], "rte": [39.0, 39.0]},
    }
    plot_tasks(found, tmp_path / "tasks.png", "title")
    assert (tmp_path / "tasks.png").read_bytes().startswith(b"\x89PNG")
    mha, mhe, share = drawn
    assert mha[0::2] == ("mha", [0.0, 52.0])
    assert mha[3] == pytest.approx([0, 8**0.5], abs=5e-5)  # of four digits
    assert mhe[0::2] == ("mhe_mul", [4.0, 39.0])
    assert mha[1] < mhe[1]  # side by side
    assert share[1:] == ([mhe[1][1]], [75.0], [0.0])  # nothing of cola, where mha knows nothing


def test_perplexity_is_drawn_against_size_and_cache(tmp_path: Path, drawn: Drawn) -> None:
    nats = {"mha": [2.0, 2.2], "mhe_mul": [2.5]}
    costs = ({"mha": 3_000_000, "mhe_mul": 1_000_000}, {"mha": 4096, "mhe_mul": 1024})
    plot_perplexity(nats, costs, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").is_file()
    assert [(name, x) for name, x, *_ in drawn] == [
        *(("mha", [3.0]), ("mhe_mul", [1.0])),
        *(("mha", [4.0]), ("mhe_mul", [1.0])),
    ]
    assert [point[2] for point in drawn] == [[2.1], [2.5]] * 2
    assert drawn[0][3] == pytest.approx([0.02**0.5], abs=5e-5)


def test_a_training_that_diverged_is_drawn_without_a_deviation(
    tmp_path: Path, drawn: Drawn
) -> None:
    costs = ({"mha": 3_000_000}, {"mha": 4096})
    plot_perplexity({"mha": [2.0, math.nan]}, costs, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").is_file()
    assert drawn[0][3] == [0.0]


def test_every_kind_has_a_look_of_its_own() -> None:
    looks = {(look(index)["color"], look(index)["marker"]) for index in range(len(KINDS))}
    assert len(looks) == len(KINDS) > 9

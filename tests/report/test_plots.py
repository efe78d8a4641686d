"""Plots: where values are drawn, and with which error bars."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rc_params_from_file
from matplotlib.axes import Axes

from fairseq_mhe.attention import KINDS
from fairseq_mhe.report import plots

#: Label, x, y and error bars of each call of errorbar.
Drawn = list[tuple[str, list[float], list[float], list[float]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Record what is drawn with error bars."""
    calls: Drawn = []
    real = Axes.errorbar

    def errorbar(self: Axes, x: Any, y: Any, yerr: Any = None, **style: Any) -> Any:
        calls.append((style["label"], list(x), list(y), list(yerr)))
        return real(self, x, y, yerr=yerr, **style)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    return calls


def test_error_bars_at_equal_costs_do_not_overlap(tmp_path: Path, drawn: Drawn) -> None:
    """Kinds with equal caches once had their bars drawn over each other."""
    summary = {"bleu": 20.0, "bleu_confidence": 1.0}
    summary |= {"kv_bytes_per_token": 2048, "attention_parameters": 3_000_000}
    curves = {key: {"valid": []} for key in "abc"}
    plots.plot_translation([summary] * 3, curves, tmp_path / "picture.png", "title")
    assert len(drawn) == 6
    for panel in (drawn[:3], drawn[3:]):
        positions = sorted(x for _, (x,), _, _ in panel)
        assert min(b - a for a, b in itertools.pairwise(positions)) >= 0.029 * positions[0]


def test_rows_and_tasks_are_drawn_side_by_side_with_their_bars(
    tmp_path: Path, drawn: Drawn
) -> None:
    points = [("mha", "base", 25.0, 1.0), ("mha", "12h", 26.0, 1.0), ("el", "12h", 24.0, 1.0)]
    plots.plot_categories(points, tmp_path / "rows.png", "title", "BLEU")
    (mha, (base, first), bleus, bars), (el, (second,), *_) = drawn
    assert (mha, bleus, bars, el) == ("mha", [25.0, 26.0], [1.0, 1.0], "el")
    assert base + 1 == first < 1 < second
    drawn.clear()
    scores = [
        {"attention": "mha", "scores": {"cola": [0.0, 0.0], "rte": [50.0, 54.0]}},
        {"attention": "mhe_mul", "scores": {"cola": [3.0, 5.0], "rte": [39.0, 39.0]}},
    ]
    plots.plot_tasks(scores, tmp_path / "tasks.png", "title")
    assert (tmp_path / "tasks.png").read_bytes().startswith(b"\x89PNG")
    assert [values for _, _, values, _ in drawn] == [[0.0, 52.0], [4.0, 39.0]]
    assert drawn[0][3] == pytest.approx([0, 8**0.5], abs=5e-5)  # of four digits


def test_perplexity_is_drawn_against_size_and_cache(tmp_path: Path, drawn: Drawn) -> None:
    """The loss of a diverged training is NaN, which has no standard deviation."""
    numbers = (
        ("mha", [2.0, 2.2], 3_000_000, 4096),
        ("mhe_mul", [2.5], 1_000_000, 1024),
        ("sha", [2.0, math.nan], 2_000_000, 2048),
    )
    names = ("attention", "nats", "attention_parameters", "kv_bytes_per_token")
    rows = [dict(zip(names, values, strict=True)) for values in numbers]
    plots.plot_perplexity(rows, tmp_path / "loss.png", "title")
    assert [x for _, (x,), _, _ in drawn] == [3.0, 1.0, 2.0, 4.0, 1.0, 2.0]
    assert [y for _, _, (y,), _ in drawn[:2]] == [2.1, 2.5]
    assert [bar for *_, (bar,) in drawn[:3]] == pytest.approx([0.1414, 0.0, 0.0])


def test_no_two_kinds_look_alike() -> None:
    cycle = rc_params_from_file(plots.STYLE)["axes.prop_cycle"]
    looks = {tuple(look.values()) for look in itertools.islice(cycle, len(KINDS))}
    assert len(looks) == len(KINDS) > 9

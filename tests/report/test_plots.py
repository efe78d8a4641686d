"""Pictures: which values are drawn where, with which bars."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from fairseq_mhe.attention import KINDS
from fairseq_mhe.report.plots import look, plot, plot_perplexity, plot_rows, plot_tasks

#: Label, place, value, bars below and above.
Drawn = list[tuple[str, float, float, float, float]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What is drawn with bars."""
    calls: Drawn = []
    real = Axes.errorbar

    def errorbar(self: Axes, x: Any, y: Any, yerr: Any = None, **style: Any) -> Any:
        calls.append((style["label"], *x, *y, *yerr[0], *yerr[1]))
        return real(self, x, y, yerr=yerr, **style)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    return calls


def test_error_bars_at_one_cost_stand_side_by_side(tmp_path: Path, drawn: Drawn) -> None:
    """The cache of mha and mhe_mul is one: their bars were drawn over each other."""
    summary = {"bleu": 20.0, "bleu_confidence": 1.0}
    summary |= {"kv_bytes_per_token": 2048, "attention_parameters": 3_000_000}
    curves = {key: {"valid": []} for key in "abc"}
    plot([summary] * 3, curves, tmp_path / "picture.png", "title")
    assert len(drawn) == 6
    for panel in (drawn[:3], drawn[3:]):
        places = sorted(place for _, place, *_ in panel)
        assert min(b - a for a, b in itertools.pairwise(places)) >= 0.029 * places[0]


def test_rows_are_drawn_with_bleu_and_prr(tmp_path: Path, drawn: Drawn) -> None:
    """The interval of a PRR of mean BLEU may lie to one side of it."""
    mha = {"row": "base", "attention": "mha", "bleu": 20.0, "bleu_confidence": 1.0}
    mhe = {**mha, "attention": "mhe_mul", "bleu": 19.0, "prr": 95.0, "p_value": 0.1}
    rows = [{**mha, "p_value": None}, {**mhe, "prr_low": 95.5, "prr_high": 96.0}]
    plot_rows(rows, tmp_path / "rows.png", "title")
    (_, left, *_), (_, right, *_), share = drawn
    assert left < 0 < right
    assert share == ("mhe_mul", right, 95.0, 0.0, 1.0)


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
    assert [(name, value) for name, _, value, *_ in drawn[:4]] == [
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
    assert [place for _, place, *_ in drawn] == [3.0, 1.0, 2.0, 4.0, 1.0, 2.0]
    assert [value for _, _, value, *_ in drawn[:2]] == [2.1, 2.5]
    assert [bar for *_, bar in drawn[:3]] == pytest.approx([0.1414, 0.0, 0.0])


def test_every_kind_has_a_look_of_its_own() -> None:
    looks = {(look(index)["color"], look(index)["marker"]) for index in range(len(KINDS))}
    assert len(looks) == len(KINDS) > 9

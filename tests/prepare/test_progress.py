"""Tests of progress: every step shows, on a terminal and in a log, and no thread runs beside the forked workers."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from fairseq_mhe.prepare import progress
from fairseq_mhe.prepare.progress import TITLES, Lines, shown_progress


@pytest.mark.parametrize("terminal", [True, False])
def test_each_step_shows(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(
        "FORCE_COLOR" if terminal else "NO_COLOR", "1"
    )  # rich takes the first for a terminal
    threads = threading.active_count()
    with shown_progress() as report:
        for step in TITLES:
            report(step, 0, 4000)
            report(step, 4000, 4000)
        assert threading.active_count() == threads
    shown = capsys.readouterr().err
    assert all(title in shown for title in TITLES.values())
    assert shown.count("4000/4000") >= len(TITLES)
    assert ("━" in shown) == terminal


def test_bars_are_not_drawn_at_every_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, drawn = [1.0], []
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(progress.Progress, "refresh", lambda bars: drawn.append(now[0]))
    with shown_progress() as report:
        for block in range(1001):
            now[0] += 0.001
            report("learn", block, 1000)
        assert 10 <= len(drawn) <= 12  # one second, and rich's own of a new bar


def test_without_a_terminal_long_steps_have_lines_and_finished_ones_a_single_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    lines = Lines()
    for second in range(41):
        now[0] = float(second)
        lines.report("learn", second, 40)
        lines.report("learn", second, 40)
    assert capsys.readouterr().err.splitlines() == [
        "learn subwords 15/40 0:00:15",
        "learn subwords 30/40 0:00:30",
        "learn subwords 40/40 0:00:40",
    ]

"""Every step of a preparation shows, on a terminal and in a log, and no thread runs beside the
forked workers.
"""

from __future__ import annotations

import threading

import pytest

from fairseq_mhe.prepare.progress import report, shown_progress

STEPS = ("clean", "learn")


@pytest.mark.parametrize("terminal", [True, False])
def test_each_step_shows(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # rich takes the first for a terminal
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    threads = threading.active_count()
    with shown_progress():
        for step in STEPS:
            report(step, 0, 4000)
            report(step, 4000, 4000)
        assert threading.active_count() == threads
    shown = capsys.readouterr().err
    assert all(step in shown for step in STEPS)
    assert shown.count("4000/4000") >= len(STEPS)
    assert ("━" in shown) == terminal

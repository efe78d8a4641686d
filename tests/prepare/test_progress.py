"""Tests of the bars: every step shows, and no thread runs beside the forked workers."""

from __future__ import annotations

import threading

import pytest

from fairseq_mhe.prepare.progress import TITLES, shown_progress


def test_each_step_has_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    threads = threading.active_count()
    with shown_progress() as report:
        for step in TITLES:
            report(step, 0, 4000)
            report(step, 4000, 4000)
        assert threading.active_count() == threads
    shown = capsys.readouterr().err
    assert all(title in shown for title in TITLES.values())
    assert shown.count("4000/4000") >= len(TITLES)

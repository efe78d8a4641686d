"""Every step of a preparation shows, on a terminal and in a log, and no thread runs beside the
forked workers.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fairseq_mhe.prepare.manifest import open_manifest

STEPS = ("clean", "learn")


@pytest.mark.parametrize("terminal", [True, False])
def test_each_step_shows(
    terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # rich takes the first for a terminal
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    threads = threading.active_count()
    with open_manifest(tmp_path, "parallel", {}) as manifest:
        for step in STEPS:
            manifest.run(step, {}, lambda work: None, 4000)
        assert threading.active_count() == threads
    shown = capsys.readouterr().err
    assert all(step in shown for step in STEPS)
    assert shown.count("4000/4000") >= len(STEPS)
    assert ("━" in shown) == terminal

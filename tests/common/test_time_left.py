"""The time that a whole job still takes follows from what it took so far, stopped or not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fairseq_mhe.common import time_left
from fairseq_mhe.common.time_left import WholeJob


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still: ``now`` is set by the test."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time_left.time, "monotonic", lambda: found.now)
    return found


def test_two_waves(clock: SimpleNamespace) -> None:
    job = WholeJob(dict.fromkeys("abcd", 100))
    assert job.left() is None
    job.trains()
    for name in "ab":
        job.trained(name, 0, begins=True)
    clock.now = 20.0
    for name in "ab":
        job.trained(name, 50)
    # 100 updates in 20 s; 300 are missing; a translation is 5% of a training.
    assert job.left() == pytest.approx(60 + 4 * 1)
    for name in "ab":
        job.trained(name, 100)
    clock.now = 40.0
    job.rests()
    clock.now = 46.0
    job.translated(2, 6.0)
    assert job.left() == pytest.approx(40 + 2 * 3)


def test_what_an_earlier_start_has_done_counts_as_done_and_not_as_speed(
    clock: SimpleNamespace,
) -> None:
    job = WholeJob({"a": 100, "trained": 100})
    job.trained("trained", 100, begins=True)
    job.trains()
    job.trained("a", 60, begins=True)
    assert job.left() is None
    clock.now = 10.0
    job.trained("a", 80)
    assert job.left() == pytest.approx(10 + 2 * 0.05 * 100 / 2)

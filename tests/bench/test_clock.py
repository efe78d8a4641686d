"""Time is added up by part."""

from __future__ import annotations

import time

import pytest
import torch

from fairseq_mhe.bench.clock import Stopwatch


def test_parts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 1.0, 3.0, 3.5, 7.0, 10.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    watch = Stopwatch(torch.device("cpu"))
    with watch.part("outer"):
        with watch.part("inner"):
            pass
        with watch.part("inner"):
            pass
    assert watch.seconds() == {"inner": 2.0 + 3.5, "outer": 10.0}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: CUDA events time its work")
def test_on_cuda_the_devices_work_counts() -> None:
    watch = Stopwatch(torch.device("cuda"))
    with watch.part("sleep"):
        torch.cuda._sleep(10_000_000)  # clock cycles: some milliseconds, launched in microseconds
    assert watch.seconds()["sleep"] > 1e-3

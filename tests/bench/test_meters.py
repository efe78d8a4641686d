"""Time is added up by part, the peak is what came since the start."""

import sys
import time

import pytest
import torch

from fairseq_mhe.bench.meters import PeakMemory, Stopwatch, tensor_peak

MIB = 2**20


def test_parts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 1.0, 3.0, 3.5, 7.0, 10.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    watch = Stopwatch(on_gpu=False)
    with watch.part("outer"):
        with watch.part("inner"):
            pass
        with watch.part("inner"):
            pass
    assert watch.seconds() == {"inner": 2.0 + 3.5, "outer": 10.0}


def touch(mebibytes: int) -> torch.Tensor:
    return torch.ones(mebibytes * MIB, dtype=torch.uint8)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own count")
def test_peak_counts_what_came_and_went() -> None:
    before = touch(150)  # in use before and during
    touch(300)  # gone before
    memory = PeakMemory(on_gpu=False)
    memory.start()
    assert memory.peak() < 20 * MIB
    touch(100)
    assert 95 * MIB < memory.peak() < 140 * MIB
    memory.start()
    assert memory.peak() < 20 * MIB
    assert before[0] == 1


def test_the_peak_of_tensors_is_exact() -> None:
    before = touch(3)

    def call() -> None:
        kept = touch(8)
        touch(5)  # gone when the next one comes
        touch(4)
        assert kept.numel() > before.numel()

    assert tensor_peak(call) == tensor_peak(call) == 13 * MIB
    assert tensor_peak(lambda: before.neg_()) == 0

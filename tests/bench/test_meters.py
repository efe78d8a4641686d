"""A stopwatch adds up seconds by part; peak memory is counted from the start of a call."""

import time
from functools import partial

import pytest
import torch

from fairseq_mhe.bench.meters import Stopwatch, peak_memory

MIB = 2**20


def test_seconds_of_a_part_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_peak_of_tensors_is_exact() -> None:
    before, peak = touch(3), partial(peak_memory, on_gpu=False)

    def call() -> None:
        tensor = touch(8)
        touch(5)  # freed before the next allocation
        touch(4)
        assert tensor.numel() > before.numel()

    assert peak(call) == peak(call) == 13 * MIB
    assert peak(lambda: before.neg_()) == 0

"""A stopwatch adds up seconds by part; peak memory is counted from the start of a call."""

import time
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

from fairseq_mhe.bench.meters import Stopwatch, longest_operators, peak_memory, waiting_places

MIB = 2**20


def test_seconds_of_a_part_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([1.0, 3.0, 3.5, 7.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    watch = Stopwatch(on_gpu=False)
    for _ in range(2):
        with watch.part("forward"):
            pass
    assert watch.seconds() == {"forward": 2.0 + 3.5}


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


def test_a_profile_names_the_operators_that_take_longest() -> None:
    matrix = torch.ones(300, 300)
    (everything, *named) = longest_operators(lambda: (matrix @ matrix).neg_(), on_gpu=False)
    seconds = [seconds for _, seconds, _ in named]
    assert {"aten::mm", "aten::neg_"} <= {name for name, *_ in named}
    assert seconds == sorted(seconds, reverse=True)
    assert everything[1] == pytest.approx(sum(seconds))


def test_a_profile_names_the_places_where_the_host_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch warns at the line that waits, here by a stand-in for a GPU."""
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def work() -> None:
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    ((place, count),) = waiting_places(work).items()
    assert (Path(place.partition(":")[0]).name, count) == ("test_meters.py", 2)
    assert modes == ["warn", "default"]

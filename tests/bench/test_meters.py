"""Peak memory is counted from the start of a call; waits for a GPU are found by their line."""

import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

from fairseq_mhe.bench.meters import peak_memory, waiting_places

MIB = 2**20


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

"""The peak is what was in use at most since the start, and nothing from before."""

from __future__ import annotations

import sys

import pytest
import torch

from fairseq_mhe.bench.memory import PeakMemory

MIB = 2**20
CPU = torch.device("cpu")


def touch(mebibytes: int) -> torch.Tensor:
    return torch.ones(mebibytes * MIB, dtype=torch.uint8)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own count")
def test_peak_counts_what_came_and_went() -> None:
    before = touch(150)  # in use before and during
    touch(300)  # gone before
    memory = PeakMemory(CPU)
    memory.start()
    assert memory.peak() < 20 * MIB
    touch(100)
    assert 95 * MIB < memory.peak() < 140 * MIB
    memory.start()
    assert memory.peak() < 20 * MIB
    assert before[0] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own count")
def test_memory_that_the_allocator_kept_counts_when_it_is_used_again() -> None:
    small = [
        torch.ones(60_000, dtype=torch.uint8) for _ in range(1000)
    ]  # too small to be given back one by one
    last = torch.ones(60_000, dtype=torch.uint8)  # keeps the heap from shrinking
    del small
    memory = PeakMemory(CPU)
    memory.start()
    again = [torch.ones(60_000, dtype=torch.uint8) for _ in range(1000)]
    assert memory.peak() > 50 * MIB
    assert last[0] == again[0][0]


def test_without_a_start_there_is_no_peak() -> None:
    assert PeakMemory(CPU).peak() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: reads its allocator")
def test_peak_on_cuda() -> None:
    memory = PeakMemory(torch.device("cuda"))
    memory.start()
    torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    assert memory.peak() == 64 * MIB

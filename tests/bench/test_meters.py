"""Time is added up by part, the peak is what came since the start, the kernel the one that ran."""

from __future__ import annotations

import itertools
import sys
import time

import pytest
import torch
from torch.nn import functional as F

from fairseq_mhe.bench.attention import PLACES, AttentionBenchmark
from fairseq_mhe.bench.meters import FUSED, PeakMemory, Stopwatch, attention_kernel, tensor_peak
from tests.bench.conftest import make_settings

MIB = 2**20
CPU = torch.device("cpu")
#: Kinds whose keys and values are kept in as many heads of the same width, which fused kernels ask
#: for.
FUSIBLE = ("mha", "mhe_mul", "mhe_add", "sha", "mqa", "gqa", "skv", "el")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU: asserts which CUDA kernel runs"
)


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


def test_the_peak_of_tensors_is_exact() -> None:
    before = touch(3)

    def call() -> None:
        kept = touch(8)
        touch(5)  # gone when the next one comes
        touch(4)
        assert kept.numel() > before.numel()

    assert tensor_peak(call) == tensor_peak(call) == 13 * MIB
    assert tensor_peak(lambda: before.neg_()) == 0


def test_the_peak_of_tensors_holds_what_gradients_wait_for() -> None:
    x = torch.ones(MIB, requires_grad=True)  # 4 MiB
    gradient = torch.ones(()).expand_as(x)

    def call() -> None:
        y = x.exp().exp()  # both results are kept
        torch.autograd.grad(y, x, gradient)  # times one, then times the other

    assert tensor_peak(call) == 4 * 4 * MIB


def test_without_a_start_there_is_no_peak() -> None:
    assert PeakMemory(CPU).peak() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: reads its allocator")
def test_peak_on_cuda() -> None:
    memory = PeakMemory(torch.device("cuda"))
    memory.start()
    torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    assert memory.peak() == 64 * MIB


def test_fused_plain_and_none() -> None:
    q = torch.randn(2, 2, 8, 16)
    assert attention_kernel(lambda: F.scaled_dot_product_attention(q, q, q)) == "flash (CPU)"
    assert attention_kernel(lambda: (q @ q.mT).softmax(-1) @ q) == "plain"
    assert attention_kernel(lambda: q @ q.mT) == "none"


def kernels(
    kind: str, places: tuple[str, ...], dtypes: tuple[str, ...]
) -> dict[tuple[str, str], str]:
    """What runs on the GPU, by place and dtype."""
    found = {}
    for place, dtype in itertools.product(places, dtypes):
        workload = AttentionBenchmark(kind, make_settings("base", "cuda", seconds=1e-4))
        workload.prepare({"place": place, "length": 128, "batch": 4, "dtype": dtype})
        workload.repetition()
        found[place, dtype] = workload.facts()["kernel"]
    return found


@needs_gpu
@pytest.mark.parametrize("kind", FUSIBLE)
def test_on_a_gpu_attention_is_fused(kind: str) -> None:
    found = kernels(kind, PLACES, ("float32", "bf16", "fp16"))
    assert {at: kernel for at, kernel in found.items() if kernel not in FUSED.values()} == {}


@needs_gpu
@pytest.mark.parametrize("kind", FUSIBLE)
def test_on_a_gpu_causal_attention_needs_no_mask(kind: str) -> None:
    """Of the fused kernels, one that knows causality and half precision by itself."""
    found = kernels(kind, ("decoder",), ("bf16", "fp16"))
    assert {at: kernel for at, kernel in found.items() if kernel not in ("flash", "cuDNN")} == {}

"""Measurements inside a process: seconds by part, peak memory, GPU kernels."""

import contextlib
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity

Seconds = dict[str, float]  # by the name of a part of the work


class Stopwatch:
    """Adds up seconds by part: on a CPU by the clock, on a GPU by events, which do not block."""

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._spans: list[Any] = []
        if on_gpu:
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = self._now()
        yield
        self._spans.append((name, start, self._now()))

    def seconds(self) -> Seconds:
        """Wait until the device has finished; return the seconds of each part."""
        if self._on_gpu:
            torch.cuda.synchronize()
        totals: Seconds = defaultdict(float)
        for name, start, end in self._spans:
            if self._on_gpu:
                totals[name] += start.elapsed_time(end) / 1000  # from milliseconds
            else:
                totals[name] += end - start
        return dict(totals)

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def peak_memory(call: Callable[[], object], on_gpu: bool) -> int:
    """Return the largest number of bytes in tensors during ``call``, beyond those before it.

    torch's allocators count exactly, unlike resident memory. On a CPU this slows the call down.
    """
    gc.collect()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    with profile(profile_memory=True) as profiler:
        call()
    results: Any = profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in events), initial=0))


def gpu_work(call: Callable[[], object]) -> dict[str, float]:
    """Return the number of ``kernels`` that a call launches, and the GPU's ``busy_seconds``."""
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
    # The raw events: profiler.events() takes 50 µs for each of a translation's many thousands.
    results: Any = profiler.profiler
    events = results.kineto_results.events()
    kernels = [event for event in events if event.device_type() == DeviceType.CUDA]
    nanoseconds = sum(kernel.duration_ns() for kernel in kernels)
    return {"kernels": len(kernels), "busy_seconds": nanoseconds / 1e9}

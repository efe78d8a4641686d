"""What is measured inside a process: seconds by part, peak memory, kernels."""

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

#: By part of the work.
Seconds = dict[str, float]


class Stopwatch:
    """Adds up seconds by part, of a wall clock on a CPU; on a GPU of events, which do not wait."""

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
        """The parts' times, once the device has done its work."""
        if self._on_gpu:
            torch.cuda.synchronize()
        totals: Seconds = defaultdict(float)
        for name, start, end in self._spans:
            # Events count milliseconds.
            seconds = start.elapsed_time(end) / 1000 if self._on_gpu else end - start
            totals[name] += seconds
        return dict(totals)

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def peak_memory(call: Callable[[], object], on_gpu: bool) -> int:
    """The most bytes that ``call`` has in tensors at once, above what was there before.

    Torch's allocators count them, unlike resident memory to the byte. On a CPU the call is slower.
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
    """How many ``kernels`` a call starts on the GPU, and ``busy_seconds`` in which it computes."""
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
    # profiler.events() takes 50 microseconds an event, of which a translation has many thousands.
    results: Any = profiler.profiler
    every = results.kineto_results.events()
    events = [event for event in every if event.device_type() == DeviceType.CUDA]
    busy = sum(event.duration_ns() for event in events)
    return {"kernels": len(events), "busy_seconds": busy / 1e9}

"""Measurements inside a process: seconds by part, peak memory, a profile, the fastest product."""

import contextlib
import gc
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import torch
from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity

Seconds = dict[str, float]  # by the name of a part of the work
Work = Callable[[], object]
#: Operators that a profile names.
_LONGEST = 15
#: Sides of the matrices by which `product_speed` measures, and its tries.
_CPU_SIDE, _GPU_SIDE, _TRIES = 1024, 8192, 5


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


def peak_memory(work: Work, on_gpu: bool) -> int:
    """Return the largest number of bytes in tensors during ``work``, beyond those before it.

    torch's allocators count exactly, unlike resident memory. On a CPU this slows the work down.
    """
    gc.collect()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    with profile(profile_memory=True) as profiler:
        work()
    results: Any = profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in events), initial=0))


def longest_operators(work: Work, on_gpu: bool) -> list[tuple[str, float, int]]:
    """Return the name, seconds and calls of the operators (on a GPU: kernels) that take longest.

    The first one, "all", adds up every operator; on a GPU it is the time in which the GPU computes.
    """
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        work()
    rows = []
    for event in profiler.key_averages():
        microseconds = (
            event.self_device_time_total if on_gpu else event.self_cpu_time_total
        )
        if microseconds > 0:  # on a GPU the host's calls have none
            rows.append((event.key, microseconds / 1e6, event.count))
    rows.sort(key=lambda row: -row[1])
    everything = ("all", sum(row[1] for row in rows), sum(row[2] for row in rows))
    return [everything, *rows[:_LONGEST]]


def waiting_places(work: Work) -> dict[str, int]:
    """Return how often the host waits for the GPU at each place (file:line) during ``work``."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [warning for warning in caught if "synchroniz" in str(warning.message)]
    return dict(Counter(f"{warning.filename}:{warning.lineno}" for warning in waits))


def product_speed(device: str, dtype: torch.dtype) -> float:
    """Return the operations a second that a large matrix product reaches: the arithmetic limit."""
    side = _GPU_SIDE if device == "cuda" else _CPU_SIDE
    matrix = torch.randn(side, side, device=device, dtype=dtype)
    watches = []
    for _ in range(_TRIES):
        watch = Stopwatch(device == "cuda")
        with watch.part("total"):
            matrix @ matrix
        watches.append(watch.seconds()["total"])
        if sum(watches) > 1:  # bfloat16 on a CPU without it takes seconds each time
            break
    return 2 * side**3 / min(watches)

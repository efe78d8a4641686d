"""What is measured inside a process: seconds by part, peak memory, kernels."""

import contextlib
import ctypes
import gc
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"  # for clear_refs (proc(5)): resets the peak resident set size, VmHWM


Work = Callable[[], object]
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
            totals[name] += start.elapsed_time(end) / 1000 if self._on_gpu else end - start
        return dict(totals)

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class PeakMemory:
    """The most memory in use since `start`, above what was in use then.

    On CUDA what tensors take (``max_memory_allocated``); on a CPU resident memory (``VmHWM``), with
    what the allocator keeps of freed memory.
    """

    _before: int | None = None

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu

    def start(self) -> None:
        gc.collect()
        if self._on_gpu:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
            return
        # The C library gives freed memory back, so that using it again counts.
        with contextlib.suppress(AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)
        with contextlib.suppress(OSError):
            (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
            self._before = _resident("VmRSS")

    def peak(self) -> int | None:
        """Bytes, or None where the system does not say."""
        if self._before is None:
            return None
        most = torch.cuda.max_memory_allocated() if self._on_gpu else _resident("VmHWM")
        return most - self._before


def _resident(name: str) -> int:
    status = (_PROCESS / "status").read_text()
    (kibibytes,) = re.findall(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kibibytes) * 1024


def tensor_peak(call: Work) -> int:
    """The most bytes that ``call`` has in tensors on the CPU at once, above what was there before.

    Torch's allocator counts them, as on CUDA: exact, unlike resident memory. The call is slower.
    """
    # Else the profiler prints when it starts.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(profile_memory=True) as profiler:
        call()
    results: Any = profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in events), initial=0))


def gpu_work(call: Work) -> dict[str, float]:
    """How many ``kernels`` a call starts on the GPU, and ``busy_seconds`` in which it computes."""
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
    events = [e for e in profiler.events() or () if e.device_type == DeviceType.CUDA]
    busy = sum(event.time_range.elapsed_us() for event in events)
    return {"kernels": len(events), "busy_seconds": busy / 1e6}

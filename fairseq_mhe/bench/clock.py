"""Time by parts: a wall clock on the CPU; on CUDA, events on the stream that does the work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch


class Stopwatch:
    """Adds up the seconds spent in named parts of one repetition.

    On CUDA nothing waits for the device before :meth:`seconds` is called, so that timing a part
    does not keep the next one from being launched meanwhile.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._spans: list[tuple[str, Any, Any]] = []
        if self._cuda:
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block's time to ``name``."""
        start = self._now()
        yield
        self._spans.append((name, start, self._now()))

    def seconds(self) -> dict[str, float]:
        """The parts' times, once the device has done its work."""
        if self._cuda:
            torch.cuda.synchronize()
        totals: dict[str, float] = {}
        for name, start, end in self._spans:
            span = (
                start.elapsed_time(end) / 1000 if self._cuda else end - start
            )  # events count milliseconds
            totals[name] = totals.get(name, 0.0) + span
        return totals

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

"""Peak memory of a process above what it held when its model was built: CUDA's allocator, or Linux's own count."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): resets the peak resident set size ("high water mark")


class PeakMemory:
    """The most memory in use since :meth:`start`, above what was in use then.

    On CUDA what tensors take (``max_memory_allocated``); on a CPU resident memory (``VmHWM``),
    which counts the allocator's own overhead too and is exact to about a page table's worth.
    Measuring costs nothing while it runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._before: int | None = None

    def start(self) -> None:
        """Forget what was before."""
        gc.collect()
        if self._cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
            return
        _return_free_memory()
        with contextlib.suppress(OSError):
            _CLEAR_REFS.write_text(_RESET_PEAK)
            self._before = _resident("VmRSS")

    def peak(self) -> int | None:
        """Bytes, or None where the system does not say."""
        if self._before is None:
            return None
        return (
            torch.cuda.max_memory_allocated() if self._cuda else _resident("VmHWM")
        ) - self._before


def _resident(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    if match is None:
        raise OSError(f"no {name} in {_STATUS}")
    return int(match[1]) * 1024


def _return_free_memory() -> None:
    """Let the C library give freed memory back, so that using it again counts."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

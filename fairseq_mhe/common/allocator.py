"""Let the process keep the memory that large tensors leave, instead of fetching it anew."""

import ctypes
import os

# glibc's <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1
#: What users set who tune the allocator themselves.
_OWN_TUNING = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def _tuned_by_its_user() -> bool:
    return any(name in os.environ for name in _OWN_TUNING)


def with_huge_pages() -> dict[str, str]:
    """Variables for a process to start with: as `keep_freed_memory`, and in pages of 2 MiB.

    Trainings touch a gigabyte an update here and there, so that the processor looks for its pages
    of 4 KiB in vain again and again. glibc 2.35 and newer asks Linux for larger ones where that is
    left to programs ("madvise"), if told so when the process starts; others pay no heed. Nothing
    where the environment tunes the allocator.
    """
    if _tuned_by_its_user():
        return {}
    names = {"hugetlb": 1, "mmap_threshold": _NEVER, "trim_threshold": _NEVER}
    tuned = ":".join(f"glibc.malloc.{name}={value}" for name, value in names.items())
    return {"GLIBC_TUNABLES": tuned}


def keep_freed_memory() -> bool:
    """Keep blocks of up to 2 GiB in the process when they are freed; returns whether that was done.

    The logits of a batch take hundreds of megabytes on their way through softmax, loss and beam
    search. glibc maps each such block from the system and unmaps it again, and the system clears it
    page by page at the first touch: a quarter of the time of a training step on a CPU. It is left
    alone where the environment tunes it, and where there is no glibc.
    """
    if _tuned_by_its_user():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _NEVER)) and bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))

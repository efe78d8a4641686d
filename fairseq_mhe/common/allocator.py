"""Let the process keep the memory that large tensors leave, instead of fetching it anew."""

import ctypes
import os

# glibc's <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1
#: What users set who tune the allocator themselves.
_OWN_TUNING = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Keep blocks of up to 2 GiB in the process when they are freed; returns whether that was done.

    The logits of a batch take hundreds of megabytes on their way through softmax, loss and beam
    search. glibc maps each such block from the system and unmaps it again, and the system clears it
    page by page at the first touch: a quarter of the time of a training step on a CPU. It is left
    alone where the environment tunes it, and where there is no glibc.
    """
    if any(name in os.environ for name in _OWN_TUNING):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _NEVER)) and bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))

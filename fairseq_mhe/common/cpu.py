"""Tuning for CPUs: glibc keeps freed memory, oneDNN keeps the products that it compiled.

``FAIRSEQ_MHE_CPU_TUNING=0`` turns all of it off. Settings of glibc's allocator or of oneDNN's cache
that are in the environment stay. Measured in docs/benchmarks.md.
"""

import ctypes
import os

from fairseq_mhe.common.system import cores, cpu_flags, memory

SWITCH = "FAIRSEQ_MHE_CPU_TUNING"
#: What users set who tune glibc's allocator themselves.
OWN_TUNING = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
# glibc's <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1
_CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
#: oneDNN's own capacity, and enough for a small corpus: an epoch of the quickstart has some 4,000.
_USUAL, _MOST = 1024, 8192
#: Bytes of a compiled product, and the share of memory that all processes may take for them.
_BYTES, _SHARE = 400_000, 1 / 4


def has_fast_bf16() -> bool:
    """Whether this processor multiplies matrices of bfloat16 faster than those of float32."""
    return not cpu_flags().isdisjoint(("avx512_bf16", "amx_bf16"))


def _tunes(*own_choice: str) -> bool:
    """Whether users leave the choice to us."""
    return os.environ.get(SWITCH) != "0" and os.environ.keys().isdisjoint(own_choice)


def with_huge_pages() -> dict[str, str]:
    """For glibc 2.35 when a training's process starts: `keep_freed_memory`, in 2 MiB pages."""
    if not _tunes(*OWN_TUNING):
        return {}
    names = {"hugetlb": 1, "mmap_threshold": _NEVER, "trim_threshold": _NEVER}
    tuned = [f"glibc.malloc.{name}={value}" for name, value in names.items()]
    return {"GLIBC_TUNABLES": ":".join(tuned)}


def keep_freed_memory() -> bool:
    """Keep freed blocks of up to 2 GiB in the process; whether that was done.

    Otherwise the system clears the logits of each batch page by page: a quarter of a training step.
    """
    if not _tunes(*OWN_TUNING):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    return all(mallopt(name, _NEVER) for name in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))


def keep_compiled_products() -> None:
    """Raise the number of compiled products that oneDNN keeps; before it compiles the first.

    In bfloat16 it compiles one for each shape, of which each epoch of text has the same thousands.
    (https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html)
    """
    if _tunes(_CAPACITY, "DNNL_PRIMITIVE_CACHE_CAPACITY"):
        affordable = int(memory() * _SHARE / cores() / _BYTES)
        os.environ[_CAPACITY] = str(min(max(affordable, _USUAL), _MOST))

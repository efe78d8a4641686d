"""Tuning for CPUs: glibc keeps freed memory, oneDNN its compiled products, threads sleep sooner.

Our commands tune the processes that they start; a program that imports the package is not tuned.
``FAIRSEQ_MHE_CPU_TUNING=0`` turns all of it off. Nothing here overrides a variable of glibc's
allocator, of oneDNN's cache or of OpenMP that the user has set. docs/benchmarks.md has the effects.
"""

import ctypes
import os

from fairseq_mhe.common.system import cores, cpu_flags, memory

SWITCH = "FAIRSEQ_MHE_CPU_TUNING"
#: Variables by which users tune glibc's allocator themselves.
OWN_TUNING = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's <malloc.h>
_MAX_THRESHOLD = 2**31 - 1
_CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
#: oneDNN's default, and enough for a small corpus and every kind: an epoch of the quickstart needs
#: some 700 where products are padded (attention/few_shapes.py), and 4,000 where they are not.
_DEFAULT_CAPACITY, _MAX_CAPACITY = 1024, 8192
#: Size of a compiled product, and the share of memory that all processes may use for them.
_PRODUCT_BYTES, _MEMORY_SHARE = 500_000, 1 / 4


def has_fast_bf16() -> bool:
    """Return whether this processor multiplies bfloat16 matrices faster than float32 ones."""
    return not cpu_flags().isdisjoint(("avx512_bf16", "amx_bf16"))


def _may_set(*variables: str) -> bool:
    """Return whether tuning is on and the user has set none of ``variables``."""
    return os.environ.get(SWITCH) != "0" and os.environ.keys().isdisjoint(variables)


def tuning() -> dict[str, str]:
    """Return the environment that makes training and translation in a new process faster.

    glibc (2.35 and later) keeps freed memory, in 2 MiB pages. oneDNN keeps more compiled products:
    in bfloat16 it compiles one for each shape, and text has thousands of shapes, the same in each
    epoch (https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html).
    """
    variables = {}
    if _may_set(*OWN_TUNING):
        size = _MAX_THRESHOLD
        tunables = ("hugetlb=1", f"mmap_threshold={size}", f"trim_threshold={size}")
        variables["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{t}" for t in tunables)
    if _may_set(_CAPACITY, "DNNL_PRIMITIVE_CACHE_CAPACITY"):
        affordable = int(memory() * _MEMORY_SHARE / cores() / _PRODUCT_BYTES)
        capacity = min(max(affordable, _DEFAULT_CAPACITY), _MAX_CAPACITY)
        variables[_CAPACITY] = str(capacity)
    return variables


def sleep_sooner() -> None:
    """Let waiting OpenMP threads sleep sooner; to be called before torch is imported.

    libgomp's threads test 300,000 times whether the others are done before they sleep. If another
    program keeps a core busy, two threads may share a core, and one computes while the other tests.
    """
    if _may_set("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        os.environ["GOMP_SPINCOUNT"] = "5000"


def keep_freed_memory(largest: int = _MAX_THRESHOLD) -> bool:
    """Let glibc keep freed blocks of up to ``largest`` bytes here; return whether it will.

    Otherwise the kernel clears each batch's logits page by page: a quarter of a training step.
    """
    if not _may_set(*OWN_TUNING):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # not glibc, as on macOS
        return False
    parameters = (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD)
    return all(mallopt(parameter, largest) for parameter in parameters)

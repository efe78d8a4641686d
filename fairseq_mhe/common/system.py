"""Where and with what a measurement was made: a number without its machine means nothing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

import torch

import fairseq_mhe

_GIB = 2**30
#: Packages whose versions are written into each run.
PACKAGES = (
    "fairseq-mhe",
    "torch",
    "ve-fairseq",
    "fairseq",
    "sacrebleu",
    "subword-nmt",
    "sentencepiece",
    "sacremoses",
)
_MEASURED = ("attention/*.py", "models/*.py", "bench/*.py", "fairseq_fixes.py")


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def versions() -> dict[str, str]:
    """Python, the machine, and the packages that have a part in a result."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine(device: str) -> dict[str, str]:
    """The hardware and the system, in words."""
    found = {
        "processor": f"{_processor()}, {cores()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / _GIB:.0f} GiB",
        "system": platform.platform(),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
    }
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        found["gpu"] = (
            f"{gpu.name}, {gpu.total_memory / _GIB:.0f} GiB, compute capability {gpu.major}.{gpu.minor}"
        )
    return found


def software() -> dict[str, str]:
    """Versions of all that has a part in the speed; ours with a hash of its source, which may be under development."""
    found = {**versions(), "fairseq_mhe source": source_hash()}
    found.pop("machine", None)
    for package in ("numpy", "ctranslate2"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def source_hash() -> str:
    """The first digits of a SHA-256 over the names and contents of the modules that have a part in the speed."""
    package = Path(fairseq_mhe.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for part in _MEASURED for path in package.glob(part)):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()

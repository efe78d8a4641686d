"""Facts about the machine and the software, which stand beside each result and measurement."""

import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from fairseq_mhe.common.errors import UserError

_GIB = 2**30
_CGROUP = Path("/sys/fs/cgroup")  # in version 2 it has the limits of a container
_PACKAGE = Path(__file__).parents[1]
#: Optional packages that we import -> the extra of pyproject.toml that installs them.
EXTRAS = {
    "ctranslate2": "convert",
    "tensorly": "convert",
    "tokenizers": "huggingface",
    "transformers": "huggingface",
    "streamlit": "demo",
    **dict.fromkeys(
        ("langcodes", "matplotlib", "regex", "requests", "rich"), "experiments"
    ),
    **dict.fromkeys(("sacremoses", "safetensors", "scipy", "urllib3"), "experiments"),
}
#: Packages whose versions are written into each run.
_PACKAGES = (
    *("fairseq-mhe", "torch", "ve-fairseq", "fairseq-fixed", "fairseq"),
    *("sacrebleu", "subword-nmt", "sentencepiece", "sacremoses"),
)


def cores() -> int:
    """Return how many CPU cores this process may use, by its affinity and its container's limit."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        microseconds, period = (_CGROUP / "cpu.max").read_text().split()
        return max(1, min(count, int(microseconds) // int(period)))
    except (OSError, ValueError):  # there is no cgroup v2, or its limit is "max"
        return count


def omp_threads(default: int) -> int:
    """Return OMP_NUM_THREADS, or ``default`` if it is no positive number, but at least 1."""
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    return int(chosen) if chosen.strip("0").isdecimal() else max(1, default)


def memory() -> int:
    """Return how many bytes this process may use: the machine's, or its container's limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int((_CGROUP / "memory.max").read_text()))
    except (OSError, ValueError):
        return physical


def require(package: str) -> None:
    """Raise UserError if ``package`` is an optional one and is not installed."""
    if package in EXTRAS and importlib.util.find_spec(package) is None:
        install = f"pip install 'fairseq-mhe[{EXTRAS[package]}]'"
        raise UserError(f"{package} is not installed: {install}")


@functools.cache  # the look-up searches files, and a table needs it for each of its runs
def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the version of each package that is installed."""
    numbers = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            numbers[package] = metadata.version(package)
    return numbers


def versions() -> dict[str, str]:
    """Return the versions of Python, the operating system and the packages that affect results."""
    system = {"python": platform.python_version(), "machine": platform.platform()}
    return {**system, **installed(_PACKAGES)}


def machine(device: str) -> dict[str, str]:
    """Return the names and sizes of processor, memory and, for "cuda", the GPU."""
    import torch  # imported here, because it takes seconds and few callers need it

    processor = _cpuinfo("model name") or platform.processor() or platform.machine()
    unit = "core" if cores() == 1 else "cores"
    facts = {"processor": f"{processor}, {cores()} {unit}"}
    facts["memory"] = f"{memory() / _GIB:.0f} GiB"
    facts["vector instructions"] = torch.backends.cpu.get_cpu_capability()
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        size = gpu.total_memory / _GIB
        capability = f"{gpu.major}.{gpu.minor}"
        facts["gpu"] = f"{gpu.name}, {size:.0f} GiB, compute capability {capability}"
    return facts


def software() -> dict[str, str]:
    """Return what affects speed: versions of packages, a hash of our source, and variables."""
    import torch

    facts = {**versions(), "fairseq_mhe source": source_hash()}
    facts |= installed(("numpy", "ctranslate2"))
    if torch.version.cuda:
        facts["cuda"] = torch.version.cuda
        facts["cudnn"] = str(torch.backends.cudnn.version())
    for name, value in os.environ.items():
        if name.startswith(("FAIRSEQ_MHE_", "TORCH_CUDNN_")):  # switches of kernels
            facts[name] = value
    return facts


def source_hash(package: Path = _PACKAGE) -> str:
    """Return the first 12 digits of a SHA-256 of all modules and YAML files, with their names."""
    digest = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.yaml")]):
        name = str(path.relative_to(package)).encode()
        digest.update(name + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def cpu_flags() -> frozenset[str]:
    """Return the processor's instruction sets by Linux's names; empty if it is not an x86."""
    return frozenset(_cpuinfo("flags").split())


def _cpuinfo(fact: str) -> str:
    """Return a fact on the first processor from /proc/cpuinfo; empty if it is not there."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    line = re.search(rf"^{fact}\s*:(.*)$", text, re.MULTILINE)
    return line[1].strip() if line else ""

"""Where and with what a measurement was made: a number without its machine means nothing."""

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
_CONTAINERS_LIMIT = Path("/sys/fs/cgroup/memory.max")
_PACKAGE = Path(__file__).parents[1]
#: Packages whose versions are written into each run.
_PACKAGES = (
    *("fairseq-mhe", "torch", "ve-fairseq", "fairseq"),
    *("sacrebleu", "subword-nmt", "sentencepiece", "sacremoses"),
)


def cores() -> int:
    """CPU cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def memory() -> int:
    """Bytes that this process may use: the machine's memory, or its container's share."""
    machines = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machines, int(_CONTAINERS_LIMIT.read_text()))
    except (OSError, ValueError):  # no control groups of version 2, or no limit: "max"
        return machines


def require(package: str) -> None:
    """Raises UserError where an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{package} is not installed: pip install {package}")


@functools.cache  # a table asks for each of its runs, and each time files are searched
def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    numbers = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            numbers[package] = metadata.version(package)
    return numbers


def versions() -> dict[str, str]:
    """Python, the machine, and the packages that have a part in a result."""
    system = {"python": platform.python_version(), "machine": platform.platform()}
    return {**system, **installed(_PACKAGES)}


def machine(device: str) -> dict[str, str]:
    """The hardware, in words."""
    import torch  # slow, and not wanted by those who count cores

    processor = _cpuinfo("model name") or platform.processor() or platform.machine()
    facts = {"processor": f"{processor}, {cores()} cores"}
    facts["memory"] = f"{memory() / _GIB:.0f} GiB"
    facts["vector instructions"] = torch.backends.cpu.get_cpu_capability()
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        size = gpu.total_memory / _GIB
        capability = f"{gpu.major}.{gpu.minor}"
        facts["gpu"] = f"{gpu.name}, {size:.0f} GiB, compute capability {capability}"
    return facts


def software() -> dict[str, str]:
    """Versions of all that has a part in the speed, our own source by a hash of it."""
    import torch

    facts = {**versions(), "fairseq_mhe source": source_hash()}
    facts |= installed(("numpy", "ctranslate2"))
    if torch.version.cuda:
        facts["cuda"] = torch.version.cuda
        facts["cudnn"] = str(torch.backends.cudnn.version())
    return facts


def source_hash(package: Path = _PACKAGE) -> str:
    """The first digits of a SHA-256 of the names and contents of all modules."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = str(path.relative_to(package)).encode()
        digest.update(name + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def cpu_flags() -> frozenset[str]:
    """Instruction sets by Linux's names; none on another processor than x86."""
    return frozenset(_cpuinfo("flags").split())


def exact_int8() -> bool:
    """Whether CTranslate2 adds up products of int8 exactly: without VNNI, x86 has 16 bits for two.

    (https://uxlfoundation.github.io/oneDNN/dev_guide_int8_computations.html)
    """
    flags = cpu_flags()
    return "avx2" not in flags or not flags.isdisjoint(("avx512_vnni", "avx_vnni"))


def _cpuinfo(fact: str) -> str:
    """What Linux says of the first processor; nothing where it does not."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    line = re.search(rf"^{fact}\s*:(.*)$", text, re.MULTILINE)
    return line[1].strip() if line else ""

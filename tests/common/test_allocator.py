"""Freed memory stays in the process, so that the next large tensor costs no page faults."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common import allocator
from fairseq_mhe.common.allocator import with_huge_pages
from tests.fixtures.processes import PYTHON

#: Page faults of making and freeing three blocks of 100 MB again and again, of which each has
#: 25,600 pages: of the cheapest round, as a block may still move in one where something small has
#: landed between them. (Tensors are such blocks; but loading torch takes seconds.)
SCRIPT = """
import json, resource, runpy, sys

kept = sys.argv[1] == "keep" and runpy.run_path(sys.argv[2])["keep_freed_memory"]()
def use():
    return [b"x" * 100_000_000 for _ in range(3)]
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
found = {"kept": kept, "faults": min(faults() for _ in range(5))}
with open("/proc/self/smaps_rollup") as rollup:
    found["huge"] = sum(int(line.split()[1]) for line in rollup if line.startswith("AnonHuge"))
print(json.dumps(found))
"""


def _run(how: str, **environment: str) -> dict[str, Any]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }
    line = [PYTHON, "-c", SCRIPT, how, allocator.__file__]
    done = subprocess.run(
        line, env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told to keep memory"
)
def test_freed_memory_is_used_again() -> None:
    plain, kept = _run("plain"), _run("keep")
    assert kept["kept"]
    assert kept["faults"] < 2_000 < plain["faults"]


def _huge_pages_are_had() -> bool:
    name, version = platform.libc_ver()
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    asked = mode.exists() and "[madvise]" in mode.read_text(encoding="ascii")
    return asked and name == "glibc" and tuple(map(int, version.split("."))) >= (2, 35)


@pytest.mark.skipif(not _huge_pages_are_had(), reason="Linux or glibc gives no huge pages if asked")
def test_a_training_starts_with_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in allocator._OWN_TUNING:
        monkeypatch.delenv(name, raising=False)
    plain, huge = _run("plain"), _run("plain", **with_huge_pages())
    assert plain["huge"] < 100_000 < huge["huge"], "three blocks of 100 MB, in kB"
    assert huge["faults"] < 2_000, "and kept"


def test_a_users_own_tuning_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert with_huge_pages() == {}
    assert not _run("keep", MALLOC_TRIM_THRESHOLD_="1000000")["kept"]

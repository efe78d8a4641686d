"""Freed memory, compiled products and waiting threads, and the user's own settings of these."""

import json
import os
import platform
import subprocess
from typing import Any

import pytest

from fairseq_mhe.common import cpu
from tests.fixtures.processes import PYTHON

#: Prints the page faults of allocating and freeing three blocks of 40 MB, each of 9,800 pages: the
#: least of three rounds, because a small object between two blocks can keep one from being used
#: again. The blocks stand for tensors, because loading torch takes seconds.
FAULTS = """
import json, resource, sys
import fairseq_mhe_cli  # with it the package loads neither fairseq nor torch
from fairseq_mhe.common.cpu import keep_freed_memory

is_tuned = keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [b"x" * 40_000_000 for _ in range(3)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps({"is_tuned": is_tuned, "faults": min(faults() for _ in range(3))}))
"""
OFF = {cpu.SWITCH: "0"}


def clean_environment(**more: str) -> dict[str, str]:
    tuning = ("MALLOC_", "GLIBC_TUNABLES", "ONEDNN", "DNNL", "GOMP_", "OMP_", cpu.SWITCH)
    return {n: v for n, v in os.environ.items() if not n.startswith(tuning)} | more


def run_alone(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process."""
    line, variables = [PYTHON, "-c", script], clean_environment(**environment)
    return subprocess.run(line, env=variables, capture_output=True, text=True)


def page_faults(*limit: int, **environment: str) -> dict[str, Any]:
    script = FAULTS.replace("memory()", f"memory(*{limit})")
    return json.loads(run_alone(script, **environment).stdout.splitlines()[-1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's allocator")
def test_freed_memory_is_used_again() -> None:
    untuned, tuned = page_faults(**OFF), page_faults()
    assert (untuned["is_tuned"], tuned["is_tuned"]) == (False, True)
    assert tuned["faults"] < 2_000 < untuned["faults"]
    assert page_faults(2**20)["faults"] > 2_000  # smaller than the blocks


def test_a_users_own_tuning_and_the_switch_win(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*cpu.OWN_TUNING, cpu.SWITCH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cpu, "memory", lambda: 2**40)
    assert int(cpu.tuning()["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 1024, "the default"
    tunables = cpu.tuning()["GLIBC_TUNABLES"].split(":")
    thresholds = [f"glibc.malloc.{name}_threshold={2**31 - 1}" for name in ("mmap", "trim")]
    assert tunables == ["glibc.malloc.hugetlb=1", *thresholds]
    for name, value in (("MALLOC_TRIM_THRESHOLD_", "1000000"), (cpu.SWITCH, "0")):
        with monkeypatch.context() as context:
            context.setenv(name, value)
            assert "GLIBC_TUNABLES" not in cpu.tuning()
            assert not cpu.keep_freed_memory()


def test_threads_sleep_sooner_unless_the_user_sets_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = "import fairseq_mhe_cli; fairseq_mhe_cli.main(['cost', '--help'])"  # loads torch
    done = run_alone(script, OMP_DISPLAY_ENV="verbose")
    assert "GOMP_SPINCOUNT = '5000'" in done.stderr
    for name, value in (("GOMP_SPINCOUNT", "7"), (cpu.SWITCH, "0")):
        with monkeypatch.context() as context:
            context.delenv("GOMP_SPINCOUNT", raising=False)
            context.setenv(name, value)
            before = dict(os.environ)
            cpu.sleep_sooner()
            assert os.environ == before

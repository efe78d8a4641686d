"""The facts beside a measurement: usable memory, and a hash of the code."""

import os
from pathlib import Path

import pytest

from fairseq_mhe.common import system


def test_a_containers_limits_bound_memory_and_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    physical = system.memory()
    assert physical == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text, usable in (("1000000\n", 10**6), ("max\n", physical), (f"{2**62}\n", physical)):
        (tmp_path / "memory.max").write_text(text)
        assert system.memory() == usable
    for text, cores in (("", 8), ("250000", 2), ("50000", 1), ("900000", 8), ("max", 8)):
        (tmp_path / "cpu.max").write_text(f"{text} 100000\n")
        assert system.cores() == cores
    monkeypatch.delattr(os, "sched_getaffinity")
    assert system.cores() == os.cpu_count()

"""The facts beside a measurement: usable memory, and a hash of the code."""

import os
from pathlib import Path

import pytest

from fairseq_mhe.common import system
from fairseq_mhe.common.system import source_hash


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


def test_the_source_hash_depends_on_modules_and_yaml_files(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    hashes = []
    files = (("module.py", "1"), ("notes.txt", "1"), ("module.py", "2"), ("recipe.yaml", "1"))
    for name, text in files:
        (tmp_path / "room" / name).write_text(text)
        hashes.append(source_hash(tmp_path))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3

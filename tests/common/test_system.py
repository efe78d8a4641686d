"""The facts beside a measurement: usable memory, and a hash of the code."""

import os
from pathlib import Path

import pytest

from fairseq_mhe.common import system
from fairseq_mhe.common.system import source_hash


def test_without_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert system.cores() == os.cpu_count()


def test_a_containers_limit_bounds_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(system, "_CONTAINER_LIMIT", limit)
    physical = system.memory()
    assert physical == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text, usable in (("1000000\n", 10**6), ("max\n", physical), (f"{2**62}\n", physical)):
        limit.write_text(text)
        assert system.memory() == usable


def test_the_source_hash_depends_on_modules_only(tmp_path: Path) -> None:
    module = tmp_path / "room" / "module.py"
    module.parent.mkdir()
    module.write_text("1")
    before = source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert source_hash(tmp_path) == before
    module.write_text("2")
    assert source_hash(tmp_path) != before

"""Numbers come with the machine and the versions they are of."""

import os
from pathlib import Path

import pytest

from fairseq_mhe.common import system
from fairseq_mhe.common.system import source_hash


def test_a_container_may_have_less_memory_than_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(system, "_CONTAINER_LIMIT", limit)
    machines = system.memory()
    assert machines == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text, found in (("1000000\n", 1_000_000), ("max\n", machines), (f"{2**62}\n", machines)):
        limit.write_text(text)
        assert system.memory() == found


def test_the_hash_changes_with_the_code_and_with_nothing_else(tmp_path: Path) -> None:
    module = tmp_path / "room" / "module.py"
    module.parent.mkdir()
    module.write_text("1")
    before = source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert source_hash(tmp_path) == before
    module.write_text("2")
    assert source_hash(tmp_path) != before

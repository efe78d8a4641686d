"""The Markdown says what the JSON says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairseq_mhe.bench.report import _memory, markdown
from fairseq_mhe.bench.run import BENCHMARKS

RESULTS = Path(__file__).parents[2] / "results" / "cpu"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_reports_are_made_again_from_their_json(path: Path) -> None:
    committed = _words(path.with_suffix(".md").read_text(encoding="utf-8"))
    by_hand = [line for line in committed if line[:3] == ["-", "stopped", "before"]]
    results = json.loads(path.read_text(encoding="utf-8"))
    lines = _words(markdown(BENCHMARKS[results["benchmark"]], results))
    assert lines == [line for line in committed if line not in by_hand]


def _words(text: str) -> list[list[str]]:
    """The words of each line, without the rules and spaces that align a table."""
    return [re.sub(r":?--+:?|\|", " ", line).split() for line in text.splitlines()]


def test_memory_is_compared_with_mhas() -> None:
    """100 (1 - peak / MHA's), and stock fairseq's where ours was not measured."""
    peaks = {"stock": 50, "mha": 40, "mhe_mul": 10, "sha": None}
    variants = {name: {"peak_bytes": peak and peak << 20} for name, peak in peaks.items()}
    _, table = _memory([{"cell": {"length": 8}, "variants": variants}])
    cells = [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]
    assert cells == ["length 8", "40.0", "-25.0", "0.0", "75.0", "-"]
    del variants["mha"]
    assert " 80.0 " in _memory([{"cell": {"length": 8}, "variants": variants}])[1]

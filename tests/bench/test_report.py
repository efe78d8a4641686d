"""The Markdown report follows from the JSON file."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairseq_mhe.bench.report import markdown, memory_saved
from fairseq_mhe.bench.run import BENCHMARKS

RESULTS = Path(__file__).parents[2] / "results" / "cpu"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_reports_hold_what_their_json_gives(path: Path) -> None:
    """Reports of earlier versions may have more columns and tables, so cells are compared."""
    committed = _cells(path.with_suffix(".md").read_text(encoding="utf-8"))
    results = json.loads(path.read_text(encoding="utf-8"))
    for line in _cells(markdown(BENCHMARKS[results["benchmark"]], results)):
        assert any(line <= other for other in committed), line


def _cells(text: str) -> Iterator[Counter[str]]:
    """Yield the cells of each line, without legends and rules of tables."""
    for line in text.splitlines():
        if not re.search("medians with quartiles|--", line):
            yield Counter(cell.strip() for cell in line.split("|"))


def test_ratios_are_of_the_same_round_and_rates_of_the_median() -> None:
    """A round on a busy machine is slow for all variants, so the ratio must not change."""
    on_gpu = {"kernels": 1234, "busy_seconds": 0.5, "units": 8}
    ours = {"total": [1.0, 10.0, 2.0], "reorder": [0.5, 0.5, 0.25]}
    variants = {"stock": {"seconds": {"total": [2.0, 20.0, 4.0]}, **on_gpu}}
    variants["mha"] = {"seconds": ours, **on_gpu}
    results = {"benchmark": "generation", "cells": [{"cell": {}, "variants": variants}]}
    results |= dict.fromkeys(("date", "load_average", "command"), "")
    results |= {name: {} for name in ("machine", "software", "settings")}
    row = markdown(BENCHMARKS["generation"], results).splitlines()[-1].split("|")
    cells = [cell.strip() for cell in row[1:6]]
    assert cells == ["mha", "2.00 [2.00, 2.00]", "2 [1.5, 6]", "4", "0.5 [0.375, 0.5]"]
    assert [cell.strip() for cell in row[-3:-1]] == ["1,234", "75%"]


def test_saved_memory_is_relative_to_mha_or_else_to_stock() -> None:
    """The percentage is 100 (1 - peak / peak of mha), or of stock where mha was not measured."""
    peaks = {"stock": 50, "mha": 40, "mhe_mul": 10}
    variants = {name: {"peak_bytes": peak << 20} for name, peak in peaks.items()}
    _, table = memory_saved({"length 8": variants})
    cells = [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]
    assert cells == ["length 8", "40.0", "-25.0", "0.0", "75.0"]
    del variants["mha"]
    assert " 80.0 " in memory_saved({"length 8": variants})[1]

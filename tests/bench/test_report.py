"""The Markdown says what the JSON says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairseq_mhe.bench.report import label
from fairseq_mhe.bench.report import markdown as report
from fairseq_mhe.bench.run import BENCHMARKS

RESULTS = Path(__file__).parents[2] / "results" / "cpu"
CELL = {"beam": 5, "source_length": 100, "dtype": "float32"}


def result(relative: float | None, **other):
    ratio = (
        None
        if relative is None
        else {"median": relative, "low": relative - 0.1, "high": relative + 0.1}
    )
    return {
        "status": "ok",
        "seconds": {"total": [2.0], "reorder": [0.5]},
        "median": {"total": 2.0, "reorder": 0.5},
        "quartiles": {"total": [1.5, 2.5], "reorder": [0.4, 0.6]},
        "relative": ratio,
        "rate": 4.0,
        "units": 8,
        "multiply_adds": 6e9,
        "bytes": 1e9,
        "arithmetic_limit": 1.25,
        "traffic_limit": 1.5,
        "cache_bytes": 3 * 2**20,
        "encoder_output_bytes": 2**20,
        "peak_bytes": None,
        "weight_bytes": 2**21,
        "kernel": "flash",
        **other,
    }


def markdown(given):
    return report(BENCHMARKS[given["benchmark"]], given)


def results(bench: str, **variants):
    return {
        "benchmark": bench,
        "date": "2030-01-01",
        "load_average": 0.1,
        "command": "fairseq-mhe bench",
        "machine": {"processor": "P"},
        "software": {"torch": "T"},
        "settings": {"row": "base"},
        "cells": [{"cell": CELL, "variants": variants}],
    }


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_reports_are_made_again_from_their_json(path: Path) -> None:
    committed = _words(path.with_suffix(".md").read_text(encoding="utf-8"))
    by_hand = [line for line in committed if line[:3] == ["-", "stopped", "before"]]
    made = _words(markdown(json.loads(path.read_text(encoding="utf-8"))))
    assert made == [line for line in committed if line not in by_hand]


def _words(text: str) -> list[list[str]]:
    """The words of each line, without the rules and spaces that align a table."""
    return [re.sub(r":?--+:?|\|", " ", line).split() for line in text.splitlines()]


def test_memory_is_compared_with_mhas() -> None:
    """100 (1 - peak / MHA's), and stock fairseq's where ours was not measured."""
    peaks = {"stock": 50, "mha": 40, "mhe_mul": 10, "sha": None}
    given = results(
        "memory", **{n: result(1.0, peak_bytes=p and p << 20) for n, p in peaks.items()}
    )
    lines = [
        line for line in markdown(given).split("\n") if label(CELL) in line and line.startswith("|")
    ]
    cells = [cell.strip() for cell in lines[1].strip("|").split("|")]
    assert cells[1:] == ["40.0", "-25.0", "0.0", "75.0", "-"]
    del given["cells"][0]["variants"]["mha"]
    assert " 80.0 " in markdown(given)

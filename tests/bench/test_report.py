"""The Markdown says what the JSON says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairseq_mhe.bench.generation import PARTS
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


def test_where_generation_spends_its_time() -> None:
    parts = {part: number / 100 for number, part in enumerate(PARTS, start=1)}  # 0.01 to 0.07 s
    of_time = {"total": 2.0, "reorder": 0.5, **parts}
    given = results("generation", stock=result(1.0, median=of_time), ctranslate2_int8=result(2.0))
    given["cells"][0]["cell"] = {**CELL, "length": 10}
    text = markdown(given)
    heading = "|  | encoder | self-attention | cross-attention | feed-forward | output projection |"
    assert f"{heading} softmax |" in text
    assert text.endswith(
        "| stock | 1.00 | 2.00 | 3.00 | 4.00 | 5.00 | 6.00 | 7.00 | 50.00 | 122.00 |\n"
    )


@pytest.mark.parametrize("bench", ["attention", "training", "generation"])
def test_every_row_has_every_column(bench: str) -> None:
    failed = {"status": "out of memory", "reason": "no room"}
    without_floor = {
        k: v
        for k, v in result(9.0).items()
        if k not in ("multiply_adds", "bytes", "arithmetic_limit")
    }
    text = markdown(
        results(bench, stock=failed, mha=result(None), mhe_mul=failed, other=without_floor)
    )
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    for lines in tables:
        assert len({line.count("|") for line in lines}) == 1
    assert "| out of memory | - | out of memory | 9.00 |" in text


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_reports_are_made_again_from_their_json(path: Path) -> None:
    committed = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    by_hand = [line for line in committed if line.startswith("- stopped before its last cell")]
    made = markdown(json.loads(path.read_text(encoding="utf-8"))).splitlines()
    assert made == [line for line in committed if line not in by_hand]


def test_memory_is_compared_with_mhas() -> None:
    """100 (1 - peak / MHA's), and stock fairseq's where ours was not measured."""
    peaks = {"stock": 50, "mha": 40, "mhe_mul": 10, "sha": None}
    given = results(
        "memory", **{n: result(1.0, peak_bytes=p and p << 20) for n, p in peaks.items()}
    )
    lines = [line for line in markdown(given).split("\n") if line.startswith(f"| {label(CELL)}")]
    cells = [cell.strip() for cell in lines[1].strip("|").split("|")]
    assert cells[1:] == ["40.0", "-25.0", "0.0", "75.0", "-"]
    del given["cells"][0]["variants"]["mha"]
    assert "| 80.0 " in markdown(given)

"""The Markdown report follows from the JSON file."""

from typing import Any

from fairseq_mhe.bench.report import markdown
from fairseq_mhe.bench.run import BENCHMARKS


def report(benchmark: str, variants: dict[str, Any]) -> str:
    results: dict[str, Any] = {
        "benchmark": benchmark,
        "cells": [{"cell": {}, "variants": variants}],
    }
    results |= dict.fromkeys(("date", "load_average", "command"), "")
    results |= {name: {} for name in ("machine", "software", "settings")}
    return markdown(BENCHMARKS[benchmark], results)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_of_the_same_round_and_rates_of_the_median() -> None:
    """A round on a busy machine is slow for all variants, so the ratio must not change."""
    facts = {"units": 8, "first_units": 12, "first_seconds": 3.0, "operations": 4.0, "limit": 8.0}
    variants = {"stock": {"seconds": {"total": [2.0, 20.0, 4.0]}, **facts}}
    variants["mha"] = {"seconds": {"total": [1.0, 10.0, 2.0]}, **facts}
    row = cells(report("training", variants).splitlines()[-1])
    # Speed, seconds, tokens/s, tokens/s of the first epoch, share of the limit.
    assert row[:6] == ["mha", "2.00 [2.00, 2.00]", "2 [1.5, 6]", "4", "4", "25%"]


def test_speeds_are_also_relative_to_the_fastest_setting_of_stock() -> None:
    variants: dict[str, Any] = {"stock": {"seconds": {"total": [4.0]}}}
    variants["stock_tuned"] = {"seconds": {"total": [2.0]}}
    variants["mha"] = {"seconds": {"total": [1.0]}}
    rows = [cells(line) for line in report("generation", variants).splitlines() if " 1.00 " in line]
    assert rows[0] == ["", "1.00", "2.00", "4.00"]
    assert rows[1] == ["(stock_tuned)", "0.50", "1.00", "2.00"]


def test_a_profile_stands_below_its_cell() -> None:
    seconds = {"seconds": {"total": [2.0]}}
    operators = [["all", 1.0, 12], ["aten::mm", 0.5, 3]]
    profile = {"operators": operators, "waits": {"sequence_generator.py:9": 7}}
    lines = report("generation", {"stock": {**seconds, **profile}, "mha": seconds}).splitlines()
    assert ["aten::mm", "0.5", "25%", "3"] in map(cells, lines)
    assert ["sequence_generator.py:9", "7"] in map(cells, lines)

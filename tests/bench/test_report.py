"""The Markdown report follows from the JSON file."""

from typing import Any

from fairseq_mhe.bench.report import markdown
from fairseq_mhe.bench.run import BENCHMARKS


def report(benchmark: str, variants: dict[str, Any]) -> list[list[str]]:
    """Return the cells of each line of a report."""
    results: dict[str, Any] = {
        "benchmark": benchmark,
        "cells": [{"cell": {}, "variants": variants}],
    }
    results |= dict.fromkeys(("date", "load_average", "command"), "")
    results |= {name: {} for name in ("machine", "software", "settings")}
    lines = markdown(BENCHMARKS[benchmark], results).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_ratios_are_of_the_same_round_and_rates_of_the_median() -> None:
    """A round on a busy machine is slow for all variants, so the ratio must not change."""
    facts = {"units": 8, "first_units": 12, "first_seconds": 3.0, "operations": 4.0, "limit": 8.0}
    variants = {"stock": {"seconds": {"total": [2.0, 20.0, 4.0]}, **facts}}
    variants["mha"] = {"seconds": {"total": [1.0, 10.0, 2.0]}, **facts}
    row = report("training", variants)[-1]
    # Speed, seconds, tokens/s, tokens/s of the first epoch, share of the limit.
    assert row[:6] == ["mha", "2.00 [2.00, 2.00]", "2 [1.5, 6]", "4", "4", "25%"]


def test_speeds_are_also_relative_to_the_fastest_setting_of_stock() -> None:
    seconds = {"stock": [4.0], "stock_tuned": [2.0], "mha": [1.0]}
    variants = {name: {"seconds": {"total": total}} for name, total in seconds.items()}
    rows = report("generation", variants)
    assert ["", "1.00", "2.00", "4.00"] in rows
    assert ["(stock_tuned)", "0.50", "1.00", "2.00"] in rows

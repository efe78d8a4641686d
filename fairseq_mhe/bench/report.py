"""Writes results as Markdown: tables of speed, then all measurements of each cell."""

from typing import Any

import numpy as np

from fairseq_mhe.bench.benchmark import Benchmark, Values
from fairseq_mhe.bench.variants import STOCK
from fairseq_mhe.common.tables import align

_SHARED_COLUMNS = {"peak, MiB": "peak_bytes", "weights, MiB": "weight_bytes"}
_PEAK = "Peak: memory above what was in use once the model and the inputs were there."


def label(cell: Values) -> str:
    """Return a cell in words, such as "beam 5, batch 8"."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in cell.items())


def speed_ratios(variants: Values, reference: str = STOCK) -> dict[str, np.ndarray]:
    """Return lower quartile, median and upper quartile of each variant's speed / ``reference``'s.

    A ratio compares times of one round, when the machine was equally busy.
    """
    seconds = variants[reference]["seconds"]["total"]
    ratios = {}
    for name, result in variants.items():
        ratios[name] = _quartiles(np.divide(seconds, result["seconds"]["total"]))
    return ratios


def markdown(benchmark: type[Benchmark], results: Values) -> str:
    """Return the report of a benchmark's results."""
    facts = {"date": results["date"]}
    facts["load average at the start"] = results["load_average"]
    facts |= {"command": f"`{results['command']}`", **results["machine"]}
    facts |= {**results["software"], "settings": label(results["settings"])}
    cells = {label(entry["cell"]): entry["variants"] for entry in results["cells"]}
    blocks = [f"# Benchmark: {results['benchmark']}"]
    blocks.append("\n".join(f"- {name}: {value}" for name, value in facts.items()))
    blocks += ["## Speed, stock fairseq = 1.00", _speed_table(cells, fastest=False)]
    # All cells have the same variants; ``variants`` has those of the last cell.
    variants = next(reversed(cells.values()))
    if len(_stock_names(variants)) > 1:
        blocks += ["## Speed, fastest stock = 1.00", _speed_table(cells, fastest=True)]
    blocks += ["## Everything measured", f"{benchmark.legend} {_PEAK}"]
    for cell, variants in cells.items():
        blocks += [f"### {cell}", _measurements(benchmark, variants)]
        for name, result in variants.items():
            if "operators" in result:
                blocks.append(_profile(name, result))
    return "\n\n".join(blocks) + "\n"


def _stock_names(variants: Values) -> list[str]:
    return [name for name in variants if name.startswith(STOCK)]


def _speed_table(cells: Values, fastest: bool) -> str:
    rows = []
    for cell, variants in cells.items():
        reference = STOCK
        if fastest:
            of_stock = speed_ratios(variants)
            reference = max(_stock_names(variants), key=lambda name: of_stock[name][1])
        ratios = speed_ratios(variants, reference)
        row = [f"{ratio:.2f}" for _, ratio, _ in ratios.values()]
        rows.append([f"{cell} ({reference})" if fastest else cell, *row])
    return align(["", *variants], rows)


def _measurements(benchmark: type[Benchmark], variants: Values) -> str:
    columns = {**benchmark.columns, **_SHARED_COLUMNS}
    rows = []
    for name, (low, ratio, high) in speed_ratios(variants).items():
        texts = [_text(variants[name], *column) for column in columns.items()]
        rows.append([name, f"{ratio:.2f} [{low:.2f}, {high:.2f}]", *texts])
    return align(["", "vs stock", *columns], rows)


def _text(result: Values, heading: str, name: str) -> str:
    """Return a value in the unit of its heading; times with quartiles, units per second."""
    seconds = result["seconds"]
    value = result.get(name)
    if name in seconds:
        unit = 1e3 if heading.endswith("ms") else 1.0
        low, median, high = _quartiles(seconds[name]) * unit
        return f"{median:.3g} [{low:.3g}, {high:.3g}]"
    if value is None:
        return "-"
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.1f}"
    _, total, _ = _quartiles(seconds["total"])
    if name == "operations":
        return f"{value / total / result['limit']:.0%}"
    value /= result["first_seconds"] if name == "first_units" else total
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _profile(variant: str, result: Values) -> str:
    """Return the operators that take longest, and where the host waits for the GPU."""
    _, median, _ = _quartiles(result["seconds"]["total"])
    rows = []
    for name, seconds, calls in result["operators"]:
        rows.append(
            [name[:80], f"{seconds:.3g}", f"{seconds / median:.0%}", f"{calls:,}"]
        )
    blocks = [align([variant, "s", "of a repetition", "calls"], rows)]
    if result["waits"]:
        waits = [[place, f"{count:,}"] for place, count in result["waits"].items()]
        blocks.append(align([f"{variant} waits for the GPU at", "times"], waits))
    return "\n\n".join(blocks)


def _quartiles(values: Any) -> np.ndarray:
    return np.quantile(values, (0.25, 0.5, 0.75))

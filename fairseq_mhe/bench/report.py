"""Writes results as Markdown: first a table of speeds, then all measurements of each cell."""

from typing import Any

import numpy as np

from fairseq_mhe.bench.benchmark import STOCK, Benchmark, Values
from fairseq_mhe.common.tables import align

_SHARED_COLUMNS = {"peak, MiB": "peak_bytes", "weights, MiB": "weight_bytes"}
_GPU_COLUMNS = {"kernels": "kernels", "GPU waits": "busy_seconds"}
_PEAK = "Peak: memory above what was in use once the model and the inputs were there."


def label(cell: Values) -> str:
    """Return a cell in words, such as "beam 5, batch 8"."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in cell.items())


def markdown(benchmark: type[Benchmark], results: Values) -> str:
    """Return the report; a ratio compares times of one round, when the machine was equally busy."""
    facts = {"date": results["date"]}
    facts["load average at the start"] = results["load_average"]
    facts |= {"command": f"`{results['command']}`", **results["machine"]}
    facts |= {**results["software"], "settings": label(results["settings"])}
    cells = {label(entry["cell"]): entry["variants"] for entry in results["cells"]}
    speed = []
    everything = []
    for cell, variants in cells.items():
        on_gpu = "kernels" in variants[STOCK]
        columns = {**benchmark.columns, **_SHARED_COLUMNS}
        if on_gpu:
            columns |= _GPU_COLUMNS
        medians = []
        rows = []
        stock_seconds = variants[STOCK]["seconds"]["total"]
        for variant, result in variants.items():
            ratios = np.divide(stock_seconds, result["seconds"]["total"])
            low, ratio, high = _quartiles(ratios)
            medians.append(f"{ratio:.2f}")
            texts = [_text(result, *column) for column in columns.items()]
            rows.append([variant, f"{ratio:.2f} [{low:.2f}, {high:.2f}]", *texts])
        speed.append([cell, *medians])
        everything += [f"### {cell}", align(["", "vs stock", *columns], rows)]
    # All cells have the same variants; ``variants`` has those of the last cell.
    blocks = [f"# Benchmark: {results['benchmark']}"]
    blocks.append("\n".join(f"- {name}: {value}" for name, value in facts.items()))
    blocks += ["## Speed, stock fairseq = 1.00", align(["", *variants], speed)]
    if benchmark.saves_memory:
        blocks += memory_saved(cells)
    blocks += ["## Everything measured", f"{benchmark.legend} {_PEAK}", *everything]
    return "\n\n".join(blocks) + "\n"


def memory_saved(cells: Values) -> tuple[str, str]:
    """Return a heading and a table of the percent of MHA's (or stock's) peak that variants save."""
    rows = []
    for cell, variants in cells.items():
        base = "mha" if "mha" in variants else STOCK
        peak = variants[base]["peak_bytes"]
        saved = [100 * (1 - result["peak_bytes"] / peak) for result in variants.values()]
        rows.append([cell, f"{peak / 2**20:,.1f}", *map("{:.1f}".format, saved)])
    table = align(["", f"{base}, MiB", *variants], rows)
    return f"## Memory saved, % of the peak of {base}", table


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
    if name == "busy_seconds":
        return f"{1 - value / total:.0%}"
    value = value / total if name == "units" else value
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _quartiles(values: Any) -> Any:
    return np.quantile(values, (0.25, 0.5, 0.75))

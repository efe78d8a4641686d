"""The results as Markdown: a table of ratios for the eye, then all that was measured by cell."""

from collections.abc import Mapping
from typing import Any

from fairseq_mhe.bench.benchmark import STOCK, Benchmark
from fairseq_mhe.common.tables import align

#: By variant what was measured.
Results = Mapping[str, Mapping[str, Any]]
_MISSING = "-"
#: Columns of all benchmarks, and on a GPU.
_SHARED = {"peak, MiB": "peak_bytes", "weights, MiB": "weight_bytes"}
_GPU = {"kernels": "kernels", "GPU waits": "waiting"}
_PEAK = "Peak: memory above what was in use once the model and the inputs were there."


def label(cell: Mapping[str, Any]) -> str:
    """A cell in words."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in cell.items())


def markdown(benchmark: type[Benchmark], results: Mapping[str, Any]) -> str:
    """The whole report of what ``fairseq-mhe bench`` writes as JSON."""
    facts = {"date": results["date"], "load average at the start": results["load_average"]}
    facts |= {"command": f"`{results['command']}`", **results["machine"]}
    facts |= {**results["software"], "settings": label(results["settings"])}
    cells = {label(entry["cell"]): entry["variants"] for entry in results["cells"]}
    ratios, everything = [], []
    for cell, variants in cells.items():
        medians = [f"{result['relative']['median']:.2f}" for result in variants.values()]
        ratios.append([cell, *medians])
        everything += [f"### {cell}", _everything(benchmark.columns, variants)]
    blocks = [f"# Benchmark: {results['benchmark']}"]
    blocks.append("\n".join(f"- {name}: {value}" for name, value in facts.items()))
    blocks += ["## Speed, stock fairseq = 1.00", align(["", *variants], ratios)]
    if benchmark.saves_memory:
        blocks += memory_saved(cells)
    blocks += ["## Everything measured", f"{benchmark.legend} {_PEAK}", *everything]
    return "\n\n".join(blocks) + "\n"


def memory_saved(cells: Mapping[str, Results]) -> tuple[str, str]:
    """What each variant saves of MHA's peak memory, ours where it was measured, else stock's."""
    rows = []
    for cell, variants in cells.items():
        base = "mha" if "mha" in variants else STOCK
        whole = variants[base]["peak_bytes"]
        saved = [100 * (1 - result["peak_bytes"] / whole) for result in variants.values()]
        rows.append([cell, f"{whole / 2**20:,.1f}", *map("{:.1f}".format, saved)])
    owner = "mha" if base == "mha" else "stock fairseq"
    table = align(["", f"{base}, MiB", *variants], rows)
    return f"## Memory saved, % of the peak of {owner}", table


def _everything(own: Mapping[str, str], variants: Results) -> str:
    """A row for each variant."""
    on_gpu = any("kernels" in result for result in variants.values())
    columns = {**own, **_SHARED, **(_GPU if on_gpu else {})}
    rows = []
    for variant, result in variants.items():
        ratio = "{median:.2f} [{low:.2f}, {high:.2f}]".format_map(result["relative"])
        rows.append(
            [variant, ratio, *(_text(result, *column) for column in columns.items())]
        )
    return align(["", "vs stock", *columns], rows)


def _text(result: Mapping[str, Any], heading: str, name: str) -> str:
    """A value in the unit that its heading names: with quartiles, if it is a part of the time."""
    if name in result["median"]:
        unit = 1e3 if heading.endswith("ms") else 1.0
        low, high = (f"{seconds * unit:.3g}" for seconds in result["quartiles"][name])
        return f"{result['median'][name] * unit:.3g} [{low}, {high}]"
    if name == "waiting" and "busy_seconds" in result:
        return f"{1 - result['busy_seconds'] / result['median']['total']:.0%}"
    value = result.get(name)
    if value is None or isinstance(value, str):
        return value or _MISSING
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.1f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

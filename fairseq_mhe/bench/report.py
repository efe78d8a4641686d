"""The results as Markdown: a table of ratios for the eye, then all that was measured by cell."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_mhe.bench.benchmark import STOCK, Benchmark
from fairseq_mhe.bench.columns import MISSING, Result
from fairseq_mhe.bench.turns import OK
from fairseq_mhe.common.tables import align

_LIMITS = (
    " Limits: how many times as fast as MHA a variant would be if nothing but multiply-adds "
    "(arithmetic), or bytes of weights and cache that must be read (traffic), took time; both "
    "again as reached a second. Peak: memory above what was in use once the model and the inputs "
    "were there."
)


def markdown(benchmark: type[Benchmark], results: Mapping[str, Any]) -> str:
    """The whole report of what ``fairseq-mhe bench`` writes as JSON."""
    facts = {
        "date": results["date"],
        "load average at the start": results["load_average"],
        "command": f"`{results['command']}`",
        **results["machine"],
        **results["software"],
        "settings": label(results["settings"]),
    }
    cells = results["cells"]
    ratios = [
        [label(cell["cell"]), *map(_relative, cell["variants"].values())] for cell in cells
    ]
    blocks = [
        f"# Benchmark: {results['benchmark']}",
        "\n".join(f"- {name}: {value}" for name, value in facts.items()),
        "## Speed, stock fairseq = 1.00",
        align(["", *cells[0]["variants"]], ratios),
        *(_memory(cells) if benchmark.saves_memory else []),
        "## Everything measured",
        benchmark.legend + _LIMITS,
    ]
    for cell in cells:
        blocks += [f"### {label(cell['cell'])}", _everything(benchmark, cell["variants"])]
        blocks += _by_part(benchmark.parts, cell)
    return "\n\n".join(blocks) + "\n"


def label(cell: Mapping[str, Any]) -> str:
    """A cell in words."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in cell.items())


def _relative(result: Result) -> str:
    if result["status"] != OK:
        return result["status"]
    return f"{result['relative']['median']:.2f}" if result["relative"] else MISSING


def _memory(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each variant saves of MHA's peak memory, ours where it was measured, else stock's."""
    names = list(cells[0]["variants"])
    base = "mha" if "mha" in names else STOCK
    rows = []
    for cell in cells:
        peaks = {name: result.get("peak_bytes") for name, result in cell["variants"].items()}
        whole = peaks[base]
        if whole:
            saved = [
                MISSING if peak is None else f"{100 * (1 - peak / whole):.1f}"
                for peak in peaks.values()
            ]
            rows.append([label(cell["cell"]), f"{whole / 2**20:,.1f}", *saved])
    heading = "## Memory saved, % of the peak of " + (
        "mha" if base == "mha" else "stock fairseq"
    )
    return [heading, align(["", f"{base}, MiB", *names], rows)] if rows else []


def _everything(benchmark: type[Benchmark], variants: Mapping[str, Result]) -> str:
    """A row for each variant: its columns, or what went wrong."""
    headings = ["", *(heading for heading, _ in benchmark.columns)]
    rows = []
    for name, result in variants.items():
        if result["status"] == OK:
            rows.append([name, *(show(result) for _, show in benchmark.columns)])
        else:
            rows.append([name, result["status"], *[MISSING] * (len(headings) - 2)])
    return align(headings, rows)


def _by_part(parts: Sequence[str], entry: Mapping[str, Any]) -> list[str]:
    """Where the time went, of the variants of which that is known."""
    rows, tokens = [], entry["cell"].get("length", 1)
    for variant, result in entry["variants"].items():
        median = result.get("median", {})
        if parts and parts[0] in median:
            times = [median.get(part, 0.0) for part in parts]
            times.append(median["total"] - sum(times))
            rows.append([variant, *(f"{seconds / tokens * 1e3:.2f}" for seconds in times)])
    table = align(["", *parts, "the rest"], rows)
    return ["Milliseconds of an output token, by part:", table] if rows else []

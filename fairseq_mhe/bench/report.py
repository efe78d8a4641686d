"""The results as Markdown: a table of ratios for the eye, then all that was measured by cell."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fairseq_mhe.bench.benchmark import STOCK, Benchmark
from fairseq_mhe.common.tables import Column, align, column

Result = Mapping[str, Any]
_MISSING = "-"
#: A number that may be missing, and a number of bytes.
number = partial(column, missing=_MISSING)
mebibytes = partial(column, form=",.1f", missing=_MISSING, unit=2**20)


def duration(heading: str, part: str, unit: float = 1.0) -> Column:
    """A part's median and quartiles, in so many units a second."""

    def show(result: Result) -> str:
        if part not in result["median"]:
            return _MISSING
        low, high = (f"{seconds * unit:.3g}" for seconds in result["quartiles"][part])
        return f"{result['median'][part] * unit:.3g} [{low}, {high}]"

    return heading, show


def share(heading: str, part: str) -> Column:
    """What a part takes of the total."""

    def show(result: Result) -> str:
        median = result["median"]
        return f"{median[part] / median['total']:.1%}" if part in median else _MISSING

    return heading, show


def _achieved(heading: str, name: str) -> Column:
    """Thousand millions a second of what the floor counts."""

    def show(result: Result) -> str:
        if name not in result:
            return _MISSING
        return f"{result[name] / result['median']['total'] / 1e9:.3g}"

    return heading, show


def _ratio(result: Result) -> str:
    ratio = result["relative"]
    return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


def _waiting(result: Result) -> str:
    if "busy_seconds" not in result:
        return _MISSING
    return f"{1 - result['busy_seconds'] / result['median']['total']:.0%}"


#: How many times as fast as stock fairseq, the median and quartiles of the rounds.
RATIO: Column = ("vs stock", _ratio)
FLOOR: tuple[Column, ...] = (
    number("arithmetic limit", "arithmetic_limit", ".2f"),
    number("traffic limit", "traffic_limit", ".2f"),
    _achieved("G multiply-adds/s", "multiply_adds"),
    _achieved("GB/s", "bytes"),
)
MEMORY: tuple[Column, ...] = (
    mebibytes("peak, MiB", "peak_bytes"),
    mebibytes("weights, MiB", "weight_bytes"),
)
#: Kernels of a repetition, and the share of its time in which the GPU computes nothing.
_GPU: tuple[Column, ...] = (number("kernels", "kernels", ",.0f"), ("GPU waits", _waiting))
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
    ratios = []
    for cell in cells:
        medians = [result["relative"]["median"] for result in cell["variants"].values()]
        ratios.append([label(cell["cell"]), *(f"{median:.2f}" for median in medians)])
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


def _memory(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each variant saves of MHA's peak memory, ours where it was measured, else stock's."""
    names = list(cells[0]["variants"])
    base = "mha" if "mha" in names else STOCK
    rows = []
    for cell in cells:
        peaks = [result.get("peak_bytes") for result in cell["variants"].values()]
        whole = peaks[names.index(base)]
        if whole:
            saved = [peak and f"{100 * (1 - peak / whole):.1f}" for peak in peaks]
            rows.append(
                [label(cell["cell"]), f"{whole / 2**20:,.1f}"]
                + [text or _MISSING for text in saved]
            )
    owner = "mha" if base == "mha" else "stock fairseq"
    heading = f"## Memory saved, % of the peak of {owner}"
    return [heading, align(["", f"{base}, MiB", *names], rows)] if rows else []


def _everything(benchmark: type[Benchmark], variants: Mapping[str, Result]) -> str:
    """A row for each variant."""
    on_gpu = any("kernels" in result for result in variants.values())
    columns = (*benchmark.columns, *(_GPU if on_gpu else ()))
    rows = []
    for name, result in variants.items():
        rows.append([name, *(show(result) for _, show in columns)])
    return align(["", *(heading for heading, _ in columns)], rows)


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

"""The results as Markdown: one table of ratios for the eye, then everything that was measured, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairseq_mhe.bench.generation import PARTS
from fairseq_mhe.bench.settings import STOCK
from fairseq_mhe.bench.worker import OK
from fairseq_mhe.common.tables import align

_MIB = 2**20
_MISSING = "-"
Result = Mapping[str, Any]
Column = tuple[str, Callable[[Result], str]]


def markdown(results: Mapping[str, Any]) -> str:
    """The whole report of what ``fairseq-mhe bench`` writes as JSON."""
    bench = results["benchmark"]
    return (
        "\n\n".join(
            [
                f"# Benchmark: {bench}",
                _header(results),
                "## Speed, stock fairseq = 1.00",
                _ratios(results["cells"]),
                "## Everything measured",
                _LEGEND[bench] + _LIMITS,
                *(
                    f"### {label(entry['cell'])}\n\n{_of_cell(bench, entry)}"
                    for entry in results["cells"]
                ),
            ]
        )
        + "\n"
    )


def label(cell: Mapping[str, Any]) -> str:
    """A cell in words."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in cell.items())


def _header(results: Mapping[str, Any]) -> str:
    facts = {
        "date": results["date"],
        "load average at the start": results["load_average"],
        "command": f"`{results['command']}`",
        **results["machine"],
        **results["software"],
        "settings": ", ".join(f"{name} {value}" for name, value in results["settings"].items()),
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _ratios(cells: Sequence[Mapping[str, Any]]) -> str:
    variants = list(cells[0]["variants"])
    return align(
        ["", *variants],
        [
            [label(entry["cell"]), *(_relative(entry["variants"][name]) for name in variants)]
            for entry in cells
        ],
    )


def _of_cell(bench: str, entry: Mapping[str, Any]) -> str:
    measured = {
        name: result
        for name, result in entry["variants"].items()
        if "encoder" in result.get("median", {})
    }
    parts = (
        [f"Milliseconds of an output token, by part:\n\n{_by_part(entry['cell'], measured)}"]
        if measured
        else []
    )
    return "\n\n".join([_details(bench, entry["variants"]), *parts])


def _by_part(cell: Mapping[str, Any], variants: Mapping[str, Result]) -> str:
    names = [*PARTS, "reorder"]
    rows = []
    for variant, result in variants.items():
        times = [result["median"].get(name, 0.0) for name in names]
        rest = result["median"]["total"] - sum(times)
        rows.append(
            [variant, *(f"{seconds / cell['length'] * 1e3:.2f}" for seconds in [*times, rest])]
        )
    return align(["", *names, "the rest"], rows)


def _details(bench: str, variants: Mapping[str, Result]) -> str:
    columns = [*_COLUMNS[bench], *_FLOOR, *_MEMORY[bench]]
    rows = []
    for name, result in variants.items():
        if result["status"] == OK:
            rows.append([name, *(show(result) for _, show in columns)])
        else:
            rows.append([name, result["status"], *[_MISSING] * (len(columns) - 1)])
    return align(["", *(title for title, _ in columns)], rows)


def _relative(result: Result) -> str:
    if result["status"] != OK:
        return result["status"]
    return f"{result['relative']['median']:.2f}" if result["relative"] else _MISSING


def _relative_spread(result: Result) -> str:
    ratio = result["relative"]
    return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]" if ratio else _MISSING


def _time(part: str, factor: float) -> Callable[[Result], str]:
    """A part's median and quartiles; ``factor`` from seconds to the column's unit."""

    def show(result: Result) -> str:
        if part not in result["median"]:
            return _MISSING
        low, high = (f"{seconds * factor:.3g}" for seconds in result["quartiles"][part])
        return f"{result['median'][part] * factor:.3g} [{low}, {high}]"

    return show


def _number(name: str, digits: str, factor: float = 1.0) -> Callable[[Result], str]:
    def show(result: Result) -> str:
        return format(result[name] * factor, digits) if result.get(name) is not None else _MISSING

    return show


def _share(result: Result) -> str:
    return (
        f"{result['median']['reorder'] / result['median']['total']:.1%}"
        if "reorder" in result["median"]
        else _MISSING
    )


def _achieved(name: str) -> Callable[[Result], str]:
    """Thousand millions a second of what the floor counts."""

    def show(result: Result) -> str:
        return (
            f"{result[name] / result['median']['total'] / 1e9:.3g}" if name in result else _MISSING
        )

    return show


def _mib(name: str, title: str) -> Column:
    return title, _number(name, ",.1f", 1 / _MIB)


_RATIO: Column = (f"vs {STOCK}", _relative_spread)
_COLUMNS: dict[str, list[Column]] = {
    "attention": [
        ("forward, ms", _time("forward", 1e3)),
        ("backward, ms", _time("backward", 1e3)),
        ("in all, ms", _time("total", 1e3)),
        _RATIO,
        ("kernel", lambda result: result["kernel"]),
    ],
    "training": [("s", _time("total", 1)), ("tokens/s", _number("rate", ",.0f")), _RATIO],
    "generation": [
        ("s", _time("total", 1)),
        ("sentences/s", _number("rate", ",.3g")),
        _RATIO,
        ("reordering, s", _time("reorder", 1)),
        ("share", _share),
    ],
}
_FLOOR: list[Column] = [
    ("arithmetic limit", _number("arithmetic_limit", ".2f")),
    ("traffic limit", _number("traffic_limit", ".2f")),
    ("G multiply-adds/s", _achieved("multiply_adds")),
    ("GB/s", _achieved("bytes")),
]
_PEAK = _mib("peak_bytes", "peak, MiB")
_WEIGHTS = _mib("weight_bytes", "weights, MiB")
_MEMORY: dict[str, list[Column]] = {
    "attention": [_PEAK, _WEIGHTS],
    "training": [_PEAK, _WEIGHTS],
    "generation": [
        _mib("cache_bytes", "cache, MiB"),
        _mib("encoder_output_bytes", "encoder output, MiB"),
        _PEAK,
        _WEIGHTS,
    ],
}
_LEGEND = {
    "attention": "Milliseconds of one call (in `_steps`: of one step), medians with quartiles.",
    "training": "Seconds of one update on each of the batches, medians with quartiles; tokens are target tokens.",
    "generation": "Seconds of one batch, medians with quartiles; cache and encoder output as held at the last step.",
}
_LIMITS = (
    " Limits: how many times as fast as MHA a variant would be if nothing but multiply-adds (arithmetic), or bytes of"
    " weights and cache that must be read (traffic), took time; both again as reached a second. Peak: memory above"
    " what was in use once the model and the inputs were there."
)

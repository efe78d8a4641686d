"""``--baseline``: which ratios of a benchmark moved since an earlier run."""

from collections.abc import Iterable
from pathlib import Path

from fairseq_mhe.bench.benchmark import Values
from fairseq_mhe.bench.report import label, speed_ratios
from fairseq_mhe.bench.variants import STOCK
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.tables import align

#: Fewer rounds have no quartiles worth the name.
_LEAST_REPETITIONS = 3
_SAME = ("row", "device", "threads", "vocab_size")


def read_baseline(path: Path, results: Values, cells: Iterable[Values]) -> Values:
    """Read the results of an earlier run; UserError if ``results`` cannot be compared with them."""
    baseline = read_json(path)
    benchmark = results["benchmark"]
    if baseline.get("benchmark") != benchmark:
        raise UserError(
            f"{path}: no results of `bench {benchmark}`: name the FILE.json that it wrote"
        )
    before, now = baseline["settings"], results["settings"]
    for name in _SAME:
        if before[name] != now[name]:
            raise UserError(
                f"{path} was measured with {name} {before[name]}, this run has {now[name]}: "
                f"give --{name.replace('_', '-')} {before[name]}, or another --baseline"
            )
    if min(before["repetitions"], now["repetitions"]) < _LEAST_REPETITIONS:
        raise UserError(
            f"--baseline needs quartiles: measure {_LEAST_REPETITIONS} --repetitions or more, in "
            f"{path}, too"
        )
    measured = {label(entry["cell"]) for entry in baseline["cells"]}
    if measured.isdisjoint(map(label, cells)):
        raise UserError(
            f"{path} has none of these measurements, but {'; '.join(measured)}: give the options "
            "of its command"
        )
    return baseline


def moved(baseline: Values, results: Values) -> tuple[str, bool]:
    """Return a table of ratios before and now, and whether any of them moved.

    A ratio (a variant's speed / stock's) moved if its quartiles before and now do not overlap.
    """
    earlier = {label(entry["cell"]): entry["variants"] for entry in baseline["cells"]}
    rows = []
    any_moved = False
    for entry in results["cells"]:
        cell = label(entry["cell"])
        before = speed_ratios(earlier[cell]) if cell in earlier else {}
        now = speed_ratios(entry["variants"])
        for name in now.keys() & before.keys() - {STOCK}:
            verdict = ""
            if now[name][0] > before[name][2]:
                verdict = "faster"
            elif now[name][2] < before[name][0]:
                verdict = "slower"
            any_moved |= bool(verdict)
            change = now[name][1] / before[name][1] - 1
            texts = [
                "{1:.2f} [{0:.2f}, {2:.2f}]".format(*of)
                for of in (before[name], now[name])
            ]
            rows.append([cell, name, *texts, f"{change:+.1%}", verdict])
    rows.sort(key=lambda row: row[:2])
    return align(["", "variant", "before", "now", "change", "moved"], rows), any_moved

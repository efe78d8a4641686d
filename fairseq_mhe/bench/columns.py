"""Columns of the results' tables: a heading, and what stands under it of one variant's result."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fairseq_mhe.common.tables import Column, column

Result = Mapping[str, Any]
MISSING = "-"
#: A number that may be missing, and a number of bytes.
number = partial(column, missing=MISSING)
mebibytes = partial(column, form=",.1f", missing=MISSING, unit=2**20)


def duration(heading: str, part: str, unit: float = 1.0) -> Column:
    """A part's median and quartiles, in so many units a second."""

    def show(result: Result) -> str:
        if part not in result["median"]:
            return MISSING
        low, high = (f"{seconds * unit:.3g}" for seconds in result["quartiles"][part])
        return f"{result['median'][part] * unit:.3g} [{low}, {high}]"

    return heading, show


def share(heading: str, part: str) -> Column:
    """What a part takes of the total."""

    def show(result: Result) -> str:
        median = result["median"]
        return f"{median[part] / median['total']:.1%}" if part in median else MISSING

    return heading, show


def _achieved(heading: str, name: str) -> Column:
    """Thousand millions a second of what the floor counts."""

    def show(result: Result) -> str:
        if name not in result:
            return MISSING
        return f"{result[name] / result['median']['total'] / 1e9:.3g}"

    return heading, show


def _ratio(result: Result) -> str:
    ratio = result["relative"]
    return (
        f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]" if ratio else MISSING
    )


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

"""The one way to align a table: tabulate, with the few looks that our files have, and CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from tabulate import SEPARATING_LINE, DataRow, TableFormat, tabulate

#: ``markdown``: columns aligned by spaces; ``wide``: with two spaces more before each heading, as
#: tabulate has it; ``tight``: without spaces to align; ``latex``: with booktabs' rules.
Look = Literal["markdown", "wide", "tight", "latex"]


#: A heading, and what stands below it of one row's values.
Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def column(heading: str, name: str, form: str = "", missing: str = "", unit: float = 1) -> Column:
    """A value by its name, formatted in units; ``missing`` where it is None or absent."""

    def show(row: Mapping[str, Any]) -> str:
        value = row.get(name)
        if value is None:
            return missing
        return format(value if unit == 1 else value / unit, form)

    return heading, show


def _rule(widths: Sequence[int], aligns: Sequence[str]) -> str:
    ends = (":" if align == "right" else "-" for align in aligns)
    return f"|{'|'.join('-' * (width - 1) + end for width, end in zip(widths, ends, strict=True))}|"


def _tight_rule(widths: Sequence[int], aligns: Sequence[str]) -> str:
    return f"| {' | '.join('--:' if align == 'right' else ':--' for align in aligns)} |"


def _tight_row(cells: Sequence[str], widths: Sequence[int], aligns: Sequence[str]) -> str:
    return f"| {' | '.join(cell.strip() for cell in cells)} |"


_BARS = DataRow("|", "|", "|")
_FORMATS: dict[Look, TableFormat | str] = {
    "markdown": TableFormat(None, _rule, None, None, _BARS, _BARS, 1, None),
    "wide": "pipe",
    "tight": TableFormat(None, _tight_rule, None, None, _tight_row, _tight_row, 0, None),
    "latex": "latex_booktabs",
}


def align(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    look: Look = "tight",
    left: Iterable[int] = (0,),
) -> str:
    """A table in one of the looks; the columns ``left`` are flush left and the others right."""
    aligns = ["right"] * len(headings)
    for column in left:
        aligns[column] = "left"
    shared: dict[str, Any] = {
        "tablefmt": _FORMATS[look],
        "disable_numparse": True,
        "colalign": aligns,
    }
    if look == "markdown":  # tabulate widens a column by its heading, but not by a first row
        return str(tabulate([headings, SEPARATING_LINE, *rows], **shared))
    return str(tabulate(list(rows), headings, **shared))


def csv_text(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The values ``names`` of each row, under a line with the names."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()

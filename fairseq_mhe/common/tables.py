"""The one way to align a table, by tabulate, and to list values in a line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

#: A heading, and what stands below it of one row's values.
Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def column(heading: str, name: str, form: str = "", missing: str = "") -> Column:
    """A value by its name, formatted; ``missing`` where it is None or absent."""

    def show(row: Mapping[str, Any]) -> str:
        value = row.get(name)
        return missing if value is None else format(value, form)

    return heading, show


def align(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[int] = (0,),
    latex: bool = False,
) -> str:
    """A table in Markdown, or LaTeX's booktabs; the columns ``left`` are flush left."""
    aligns = ["left" if column in left else "right" for column in range(len(headings))]
    form = "latex_booktabs" if latex else "pipe"
    return tabulate(list(rows), headings, form, disable_numparse=True, colalign=aligns)


def listed(values: Mapping[str, Any], between: str = ", ") -> str:
    """Names with their values: "layers 6, heads 8"."""
    return between.join(f"{name} {value}" for name, value in values.items())

"""Tables as text, by tabulate, and lists of values in one line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

#: A heading, and a function that returns the text below it for one row.
Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def column(heading: str, name: str, form: str = "", missing: str = "") -> Column:
    """Return a column of the formatted value ``name``; ``missing`` if it is None or absent."""

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
    """Return a table in Markdown, or in LaTeX's booktabs; columns ``left`` are flush left."""
    aligns = ["left" if column in left else "right" for column in range(len(headings))]
    form = "latex_booktabs" if latex else "pipe"
    return tabulate(list(rows), headings, form, disable_numparse=True, colalign=aligns)


def listed(values: Mapping[str, Any], between: str = ", ") -> str:
    """Return names with their values in one line: "layers 6, heads 8"."""
    return between.join(f"{name} {value}" for name, value in values.items())

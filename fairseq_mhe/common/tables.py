"""Tables as text, by tabulate, and lists of values in one line."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate


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

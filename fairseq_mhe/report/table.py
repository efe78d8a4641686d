"""A table of results: rows under columns, written as Markdown, LaTeX and JSON."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import write_json, write_text
from fairseq_mhe.common.tables import align

#: Name -> value, for one line of a table.
Values = Mapping[str, Any]
#: A heading, and a function that returns the text below it for one line.
Column = tuple[str, Callable[[Values], str]]
#: Headings of the columns of text. They are aligned left, all other columns right.
_TEXT_COLUMNS = ("row", "attention", "variant", "compared with", "part")


@dataclass(frozen=True)
class Block:
    """Values under columns, with a heading if the table has several blocks."""

    columns: Sequence[Column]
    rows: Sequence[Values]
    heading: str = ""

    def lines(self) -> list[list[str]]:
        """Return the headings of the columns, then the cells of each row."""
        headings = [heading for heading, _ in self.columns]
        lines = [[show(row) for _, show in self.columns] for row in self.rows]
        return [headings, *lines]

    def aligned(self, latex: bool = False) -> str:
        headings, *lines = self.lines()
        left = [n for n, heading in enumerate(headings) if heading in _TEXT_COLUMNS]
        return align(headings, lines, left, latex)


@dataclass(frozen=True)
class Table:
    """Blocks with a title above and notes below."""

    title: str
    blocks: Sequence[Block]
    notes: Sequence[str]

    def markdown(self) -> str:
        parts = [f"# {one_line(self.title)}"]
        for block in self.blocks:
            if block.heading:
                parts.append(f"## {block.heading}")
            parts.append(block.aligned())
        parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """Return a tabular for each block, below the title and the notes as comments."""
        comments = (self.title, "Needs \\usepackage{booktabs}.", *self.notes)
        lines = [f"% {one_line(comment)}" for comment in comments]
        blocks = "\n\n".join(block.aligned(latex=True) for block in self.blocks)
        return "\n".join([*lines, blocks, ""])

    def write(self, path: Path, values: Any) -> None:
        """Write the Markdown file ``path``, and ``values`` into the JSON file beside it."""
        write_text(path, self.markdown())
        write_json(path.with_suffix(".json"), values)


def filled(
    columns: Sequence[Column], rows: Sequence[Values], always: Sequence[str] = ()
) -> list[Column]:
    """Return the columns that have a value in at least one row, or a heading in ``always``."""
    filled_columns = []
    for heading, show in columns:
        if heading in always or {show(row) for row in rows} - {"", "-"}:
            filled_columns.append((heading, show))
    return filled_columns


def column(heading: str, name: str, form: str = "", missing: str = "") -> Column:
    """Return a column of the formatted value ``name``; ``missing`` if it is None or absent."""

    def show(row: Values) -> str:
        value = row.get(name)
        return missing if value is None else format(value, form)

    return heading, show


def p_column(name: str, digits: int) -> Column:
    """Return a column of p-values, which are never rounded to 0; empty if there is none."""
    least = 10.0**-digits

    def show(row: Values) -> str:
        p = row.get(name)
        if p is None:
            return ""
        return f"<{least:.{digits}f}" if p < least else f"{p:.{digits}f}"

    return "p", show


def interval_column(heading: str, name: str, form: str) -> Column:
    """Return a column of the interval from NAME_low to NAME_high; empty if there is none."""

    def show(row: Values) -> str:
        low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
        return "" if low is None else f"{low:{form}} to {high:{form}}"

    return heading, show


def seeds_column(heading: str, name: str, digits: int = 2) -> Column:
    """Return a column of mean ± standard deviation; the value ``name`` lists one number a seed."""

    def show(row: Values) -> str:
        if not row.get(name):
            return "-"
        mean = statistics.mean(row[name])
        spread = deviation(row[name])
        text = f"{mean:.{digits}f}"
        return text if spread is None else f"{text} ± {spread:.{digits}f}"

    return heading, show


def seed_words(seeds: Sequence[object]) -> str:
    """Return "seed 1", or "seeds 1, 2, 3"."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation; None for a single value or if a value is not finite."""
    defined = len(values) > 1 and all(map(math.isfinite, values))
    return round(statistics.stdev(values), 4) if defined else None

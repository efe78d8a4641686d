"""A table of results: rows under columns, written as Markdown, LaTeX, CSV and JSON."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import write_json, write_text, yaml_beside
from fairseq_mhe.common.tables import Column, align, column

#: The values of one row, by name.
Row = Mapping[str, Any]
#: Columns of words, which are flush left; numbers are flush right.
_WORDS = ("row", "attention", "variant", "compared with", "part")


@dataclass(frozen=True)
class Block:
    """Rows under columns, with a heading where a table has several blocks."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    heading: str = ""

    def lines(self) -> list[list[str]]:
        """The names of the columns, then a line for each row."""
        names = [name for name, _ in self.columns]
        lines = [[show(row) for _, show in self.columns] for row in self.rows]
        return [names, *lines]

    def aligned(self, latex: bool = False) -> str:
        names, *lines = self.lines()
        left = [index for index, name in enumerate(names) if name in _WORDS]
        return align(names, lines, left, latex)


@dataclass(frozen=True)
class Table:
    """Blocks with a title above and notes below."""

    title: str
    blocks: Sequence[Block]
    notes: Sequence[str]

    def markdown(self) -> str:
        parts = [f"# {one_line(self.title)}"]
        for block in self.blocks:
            parts += [f"## {block.heading}"] if block.heading else []
            parts.append(block.aligned())
        parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """The blocks as tabulars, with title and notes as comments."""
        comments = (self.title, "Needs \\usepackage{booktabs}.", *self.notes)
        lines = [f"% {one_line(comment)}" for comment in comments]
        blocks = "\n\n".join(block.aligned(latex=True) for block in self.blocks)
        return "\n".join([*lines, blocks, ""])

    def write(self, path: Path, values: Any) -> None:
        """Write the Markdown file ``path``, and ``values`` into the JSON file beside it."""
        write_text(path, self.markdown())
        write_json(path.with_suffix(".json"), values)


def columns(part: str) -> list[Column]:
    """Those of a part of columns.yaml."""
    specs = yaml_beside(__file__, "columns.yaml")[part]
    chosen = []
    for spec in specs:
        make = over_seeds if type(spec[-1]) is int else column
        chosen.append(make(*spec))
    return chosen


def filled(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """The columns that have a value in some row."""
    kept = []
    for name, show in columns:
        if {show(row) for row in rows} - {"", "-"}:
            kept.append((name, show))
    return kept


def over_seeds(heading: str, name: str, digits: int = 2) -> Column:
    """A column of values of several seeds: mean ± standard deviation, a dash without values."""

    def show(row: Row) -> str:
        if not row.get(name):
            return "-"
        mean = statistics.mean(row[name])
        spread = deviation(row[name])
        text = f"{mean:.{digits}f}"
        return text if spread is None else f"{text} ± {spread:.{digits}f}"

    return heading, show


def seed_words(seeds: Sequence[object]) -> str:
    """ "seed 1", or "seeds 1, 2, 3"."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of several values, all of them finite."""
    several = len(values) > 1 and all(map(math.isfinite, values))
    return round(statistics.stdev(values), 4) if several else None

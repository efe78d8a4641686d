"""The live overview of a table's cells: what each one does, how far it is, its speed and loss, and the time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fairseq_mhe.common.board import LINE_EVERY

WAITING, DONE = "waiting", "done"


@dataclass
class _Cell:
    """What is known of one; ``since`` and ``before``: when its present work began, and what was done by then."""

    state: str = WAITING
    total: int = 0
    done: int = 0
    note: str = ""
    since: float = 0.0
    before: int = 0

    def left(self) -> str:
        """The time left of its present work."""
        if self.state in (WAITING, DONE) or self.done <= self.before:
            return ""
        seconds = round(
            (time.monotonic() - self.since) / (self.done - self.before) * (self.total - self.done)
        )
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class Overview:
    """A row for each cell: on a terminal a table that is always there, elsewhere lines now and then."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self.console = console
        self._cells = {name: _Cell() for name in names}
        self._state = ""
        self._last_line = time.monotonic()
        self._live = Live(console=console, refresh_per_second=2, get_renderable=self._table)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def begin(self, state: str) -> None:
        """From now on what begins is in this state ("training")."""
        self._state = state

    def add(self, name: str, total: int, done: int = 0) -> None:
        """A cell's work begins, ``done`` of ``total`` units of which were done before."""
        self._cells[name] = _Cell(self._state, total, done, "", time.monotonic(), done)

    def update(self, name: str, done: int, note: str = "") -> None:
        """It has come so far."""
        cell = self._cells[name]
        cell.done, cell.note = done, note or cell.note

    def finish(self, name: str) -> None:
        """A cell has its scores."""
        self._cells[name].state = DONE

    def tick(self) -> None:
        """Where there is no terminal, print the state from time to time."""
        if not self.console.is_terminal and time.monotonic() - self._last_line >= LINE_EVERY:
            self._last_line = time.monotonic()
            self.lines()

    def lines(self) -> None:
        """Print how many cells are done, and a line for each one at work."""
        finished = sum(cell.state == DONE for cell in self._cells.values())
        self.say(f"  {finished} of {len(self._cells)} cells done")
        for name, cell in self._cells.items():
            if cell.state not in (WAITING, DONE) and cell.done < cell.total:
                note, left = (f", {cell.note}" if cell.note else ""), cell.left()
                self.say(
                    f"  {name}: {cell.state} {cell.done}/{cell.total}{note}, left: {left or 'not known yet'}"
                )

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table("cell", "state", "step", "loss, speed", "time left", box=None, pad_edge=False)
        for name, cell in self._cells.items():
            step = f"{cell.done:,}/{cell.total:,}" if cell.total else ""
            table.add_row(name, cell.state, step, cell.note, cell.left())
        return table

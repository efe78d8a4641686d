"""How far several things are and how long they still take: bars on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from fairseq_mhe.prepare.progress import LINE_EVERY


class Watcher(Protocol):
    """Whoever is told how far things are."""

    def add(self, name: str, total: int, done: int = 0) -> None:
        """Something begins, ``done`` of ``total`` units of which were done before."""

    def update(self, name: str, done: int, note: str = "") -> None:
        """It has come so far."""

    def tick(self) -> None:
        """Time passes."""

    def say(self, text: str) -> None:
        """A line for people."""


class Board:
    """One row of progress for each thing under way."""

    def __init__(self, console: Console, unit: str) -> None:
        self.console = console
        self._unit = unit
        self._rows: dict[str, TaskID] = {}
        self._started: dict[str, tuple[float, int]] = {}
        self._last_line = time.monotonic()
        # Narrow enough for a terminal of 80 columns.
        self._bars = Progress(
            TextColumn("  {task.description}"),
            BarColumn(bar_width=8),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def add(self, name: str, total: int, done: int = 0) -> None:
        """A new row, ``done`` of ``total`` units of which were done before."""
        self._rows[name] = self._bars.add_task(name, total=total, completed=done, note="")
        self._started[name] = (time.monotonic(), done)

    def update(self, name: str, done: int, note: str = "") -> None:
        """Set a row's state."""
        self._bars.update(self._rows[name], completed=done, note=note)

    def tick(self) -> None:
        """Call often: where there is no terminal it prints the state from time to time."""
        if not self.console.is_terminal and time.monotonic() - self._last_line >= LINE_EVERY:
            self._last_line = time.monotonic()
            self.lines()

    def lines(self) -> None:
        """Print each unfinished row as a line."""
        for task in self._bars.tasks:
            if task.completed < (task.total or 0):
                note = f", {task.fields['note']}" if task.fields["note"] else ""
                left = self._seconds_left(
                    task.description, int(task.completed), int(task.total or 0)
                )
                done = f"{int(task.completed)}/{int(task.total or 0)} {self._unit}"
                self.say(f"  {task.description}: {done}{note}, left: {left}")

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _seconds_left(self, name: str, done: int, total: int) -> str:
        since, before = self._started[name]
        if done <= before:
            return "not known yet"
        seconds = round((time.monotonic() - since) / (done - before) * (total - done))
        return f"{seconds // 60}:{seconds % 60:02d}"

"""Progress and the time left: live rows on a terminal, otherwise a line now and then.

rich is loaded when a command makes a `Board`: many commands only `say` something.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task, TaskID

#: Seconds between two drawings on a terminal, and between two reports in lines.
_DRAW_EVERY, _LINE_EVERY = 0.1, 15.0
_SPEED_PERIOD = 60.0  # the speed in these past seconds determines the time left
_DONE = "done"  # the state of a finished row
Item = TypeVar("Item")


def say(text: str) -> None:
    """Print a line for people on standard error."""
    print(text, file=sys.stderr, flush=True)


class Board:
    """A context manager with a row of `rich.progress` for each job or other piece of work.

    It has no thread, so that processes may be forked: it draws in `add`, `update` and `tick`.
    ``unit``: what is counted ("updates"); ``names``: all rows, if they are known in advance;
    ``state``: what the next rows are added for ("training").
    """

    def __init__(
        self, unit: str = "", names: Iterable[str] = (), console: Console | None = None
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = console or Console(stderr=True)
        self._terminal = self.console.is_terminal
        self._unit = unit and f" {unit}"
        self.state = ""
        self._warned: set[tuple[str, str]] = set()
        self._printed: list[str] = []  # the last lines of `print_lines`
        # A terminal shows the board at once; elsewhere the first lines come after an interval.
        self._shown = 0.0 if self._terminal else time.monotonic()
        self._progress = Progress(
            TextColumn("  {task.description} {task.fields[state]}", markup=False),
            BarColumn(bar_width=8),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            speed_estimate_period=_SPEED_PERIOD,
            get_time=time.monotonic,
            disable=not self._terminal,
        )
        self._ids: dict[str, TaskID] = {}
        for name in names:
            self._ids[name] = self._progress.add_task(
                name, total=0, state="waiting", note=""
            )
        self._planned = bool(self._ids)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def add(self, name: str, total: int, done: int = 0) -> None:
        """Begin a row at ``done`` of ``total`` units, where an earlier run may have stopped."""
        row: dict[str, Any] = {"total": total, "completed": done, "state": self.state}
        if name in self._ids:
            self._progress.reset(self._ids[name], note="", **row)
        else:
            self._ids[name] = self._progress.add_task(name, note="", **row)
        self.tick()

    def update(
        self, name: str, done: int, total: int | None = None, note: str = ""
    ) -> None:
        """Set a row's count; begin the row if `add` did not. Without ``note`` its note stays."""
        if name not in self._ids:
            self.add(name, total or 0)
        task = self._progress.tasks[self._ids[name]]
        reaches_total = task.completed < (total or task.total or 0) <= done
        note = note or task.fields["note"]
        self._progress.update(task.id, total=total, completed=done, note=note)
        if reaches_total and not self._terminal:
            took = timedelta(seconds=round(task.elapsed or 0))
            self.say(f"{self._line(task)}, took {took}")
        self.tick()

    def finish(self, name: str) -> None:
        """Mark a row of ``names`` as done."""
        self._progress.update(self._ids[name], state=_DONE)

    def tick(self) -> None:
        """Draw or print the board if the interval has passed; to be called often."""
        seconds = _DRAW_EVERY if self._terminal else _LINE_EVERY
        if time.monotonic() - self._shown >= seconds:
            self._shown = time.monotonic()
            if self._terminal:
                self._progress.refresh()
            else:
                self.print_lines()

    def print_lines(self) -> None:
        """Print how many of the ``names`` are done, and a line for each unfinished row.

        Print nothing if nothing has changed since the last time.
        """
        tasks = self._progress.tasks
        lines = []
        if self._planned:
            finished = sum(task.fields["state"] == _DONE for task in tasks)
            lines.append(f"  {finished} of {len(tasks)} done")
        for task in tasks:
            if task.fields["state"] != _DONE and task.completed < (task.total or 0):
                note = task.fields["note"] and f", {task.fields['note']}"
                seconds = task.time_remaining
                remaining: object = "not known yet"
                if seconds is not None:
                    remaining = timedelta(seconds=round(seconds))
                lines.append(f"{self._line(task)}{note}, left: {remaining}")
        if lines and lines != self._printed:
            self.say("\n".join(lines))
        self._printed = lines

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, name: str, warnings: Iterable[str]) -> None:
        """Print warnings about a row, each once."""
        for warning in warnings:
            if (name, warning) not in self._warned:
                self._warned.add((name, warning))
                self.say(f"  {name}: warning: {warning}")

    def _line(self, task: Task) -> str:
        state = task.fields["state"] and f"{task.fields['state']} "
        counts = f"{task.completed:.0f}/{task.total:.0f}{self._unit}"
        return f"  {task.description}: {state}{counts}"


def tracked(
    items: Iterable[Item], name: str, total: int, unit: str = ""
) -> Iterator[Item]:
    """Yield the items and show progress; ``total`` is their approximate number."""
    with Board(unit) as board:
        for done, item in enumerate(items, 1):
            yield item
            board.update(name, done, max(done, total))

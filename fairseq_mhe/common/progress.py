"""How far things are and how long they still take: live on a terminal, elsewhere in lines."""

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

#: Seconds between two pictures on a terminal, and between two reports in lines.
_DRAW_EVERY, _LINE_EVERY = 0.1, 15.0
#: Seconds of progress from which the time left is taken.
_SPEED_OF = 60.0
_WAITING, _DONE = "waiting", "done"
Item = TypeVar("Item")


def say(text: str) -> None:
    """Print a line for people on standard error, above the rows of a board."""
    print(text, file=sys.stderr, flush=True)


class Board:
    """A row of `rich.progress` for each thing that is under way, used with ``with``.

    It has no thread, so that processes may be forked meanwhile: it draws at a report and at `tick`.
    ``unit``: of what is counted ("updates"); ``names``: of all rows, where they are known
    beforehand, to be shown with a ``state`` ("training").
    """

    def __init__(
        self, unit: str = "", names: Iterable[str] = (), console: Console | None = None
    ) -> None:
        self.console = console or Console(stderr=True)
        self._terminal = self.console.is_terminal
        self._unit = unit and f" {unit}"
        self.state = ""
        self._warned: set[tuple[str, str]] = set()
        # The first picture comes at once, the first lines later.
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
            speed_estimate_period=_SPEED_OF,
            get_time=lambda: time.monotonic(),
            disable=not self._terminal,
        )
        self._ids: dict[str, TaskID] = {}
        for name in names:
            self._ids[name] = self._progress.add_task(
                name, total=0, state=_WAITING, note=""
            )
        self._planned = bool(self._ids)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def add(self, name: str, total: int, done: int = 0) -> None:
        """Work begins, ``done`` of ``total`` units of which were done before."""
        row: dict[str, Any] = {"total": total, "completed": done, "state": self.state}
        if name in self._ids:
            self._progress.reset(self._ids[name], note="", **row)
        else:
            self._ids[name] = self._progress.add_task(name, note="", **row)
        self.tick()

    def update(
        self, name: str, done: int, total: int | None = None, note: str = ""
    ) -> None:
        """Work has come so far, of a ``total`` if it was not added before; a note stays."""
        if name not in self._ids:
            self.add(name, total or 0)
        task = self._progress.tasks[self._ids[name]]
        ends = task.completed < (total or task.total or 0) <= done
        note = note or task.fields["note"]
        self._progress.update(task.id, total=total, completed=done, note=note)
        if ends and not self._terminal:
            took = timedelta(seconds=round(task.elapsed or 0))
            self.say(f"{self._line(task)}, took {took}")
        self.tick()

    def finish(self, name: str) -> None:
        """All work on one of the ``names`` is over."""
        self._progress.update(self._ids[name], state=_DONE)

    def tick(self) -> None:
        """Draw or print if it is time: call it often."""
        seconds = _DRAW_EVERY if self._terminal else _LINE_EVERY
        if time.monotonic() - self._shown >= seconds:
            self._shown = time.monotonic()
            if self._terminal:
                self._progress.refresh()
            else:
                self.lines()

    def lines(self) -> None:
        """Print a line for each row under way, after how many of the ``names`` are done."""
        tasks = self._progress.tasks
        if self._planned:
            finished = sum(task.fields["state"] == _DONE for task in tasks)
            self.say(f"  {finished} of {len(tasks)} done")
        for task in tasks:
            if task.fields["state"] != _DONE and task.completed < (task.total or 0):
                note = task.fields["note"] and f", {task.fields['note']}"
                seconds = task.time_remaining
                remaining: object = "not known yet"
                if seconds is not None:
                    remaining = timedelta(seconds=round(seconds))
                self.say(f"{self._line(task)}{note}, left: {remaining}")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, name: str, warnings: Iterable[str]) -> None:
        """Print warnings about a row's work, each once."""
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
    """The items, of about ``total``, with progress shown meanwhile."""
    with Board(unit) as board:
        for done, item in enumerate(items, 1):
            yield item
            board.update(name, done, max(done, total))

"""How far things are and how long they still take: live on a terminal, elsewhere in lines."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fairseq_mhe.common.time_left import WholeJob

#: Seconds between two pictures on a terminal: drawing takes longer than what many updates tell of.
_DRAW_EVERY = 0.1
#: Seconds between two reports in lines.
_LINE_EVERY = 15.0
#: The state whose units are those of a `WholeJob`.
TRAINING = "training"
#: What a row that was named beforehand is before its work begins, and when it is over.
_WAITING, _DONE = "waiting", "done"


@dataclass
class _Row:
    """What is known of one thing; its work began at ``since`` with ``before`` units done."""

    state: str
    total: int = 0
    done: int = 0
    note: str = ""
    before: int = 0
    since: float = 0.0
    until: float = 0.0

    @property
    def under_way(self) -> bool:
        """Whether its work has begun and is not over."""
        return self.state != _DONE and self.done < self.total

    def left(self) -> str:
        """The time that its present work still takes; nothing where that is not known."""
        if not self.under_way or self.done <= self.before:
            return ""
        rate = (time.monotonic() - self.since) / (self.done - self.before)
        return _clock(rate * (self.total - self.done))

    def took(self) -> str:
        """The time that its finished work took."""
        return _clock(self.until - self.since) if self.until else ""


def say(text: str) -> None:
    """Print a line for people on standard error, above the rows of a board."""
    print(text, file=sys.stderr, flush=True)


class Board:
    """A row for each thing that is under way.

    It has no thread, so that worker processes may be forked meanwhile: it draws when it is told
    something, and at ``tick``.
    """

    def __init__(
        self,
        unit: str = "",
        names: Iterable[str] = (),
        console: Console | None = None,
        transient: bool = False,
        job: WholeJob | None = None,
    ) -> None:
        """Used with ``with``.

        Args:
            unit: of what is counted ("updates").
            names: of all rows, where they are known beforehand; they are then shown with a state.
            console: where to show it; standard error by default.
            transient: nothing of it stays on a terminal.
            job: what all rows together are; the time that it still takes is then shown.
        """
        self._job, self._counts = job, False
        self.console = console or Console(stderr=True)
        self._unit = unit and f" {unit}"
        self._rows = {name: _Row(_WAITING) for name in names}
        self._planned = bool(self._rows)
        self._state = ""
        self._warned: set[tuple[str, str]] = set()
        # The first picture comes at once, the first lines later.
        self._shown = 0.0 if self.console.is_terminal else time.monotonic()
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=transient,
            redirect_stdout=False,
            get_renderable=self._table,
        )

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
        """From now on what is added is in this state ("training")."""
        self._state = state
        self._counts = state == TRAINING
        if self._job and self._counts:
            self._job.trains()
        elif self._job:
            self._job.rests()

    def add(self, name: str, total: int, done: int = 0) -> None:
        """Work begins, ``done`` of ``total`` units of which were done before."""
        self._rows[name] = _Row(self._state, total, done, "", done, time.monotonic())
        if self._job and self._counts:
            self._job.trained(name, done, begins=True)
        self.tick()

    def update(self, name: str, done: int, note: str = "") -> None:
        """It has come so far; where there is no terminal, its end is a line. A note stays."""
        row = self._rows[name]
        ends = row.under_way and done >= row.total
        row.done, row.note = done, note or row.note
        if self._job and self._counts:
            self._job.trained(name, done)
        if ends:
            row.until = time.monotonic()
            if not self.console.is_terminal:
                self.say(f"{self._begun(name)}, took {row.took()}")
        self.tick()

    def advance(self, name: str) -> None:
        """One unit more is done."""
        self.update(name, self._rows[name].done + 1)

    def report(self, name: str, done: int, total: int) -> None:
        """``add`` at a name's first call, and ``update``: for work that tells both each time."""
        if name not in self._rows:
            self.add(name, total)
        self._rows[name].total = total
        self.update(name, done)

    def finish(self, name: str) -> None:
        """All work on one of the ``names`` is over."""
        self._rows[name].state = _DONE

    def tick(self) -> None:
        """Time passes: call it often."""
        terminal = self.console.is_terminal
        if time.monotonic() - self._shown >= (_DRAW_EVERY if terminal else _LINE_EVERY):
            self._shown = time.monotonic()
            if terminal:
                self._live.refresh()
            else:
                self.lines()

    def lines(self) -> None:
        """Print a line for each row under way, after how many of the ``names`` are done."""
        if self._planned:
            finished = sum(row.state == _DONE for row in self._rows.values())
            self.say(f"  {finished} of {len(self._rows)} done{self._all_of_it()}")
        for name, row in self._rows.items():
            if row.under_way:
                note = f", {row.note}" if row.note else ""
                self.say(f"{self._begun(name)}{note}, left: {row.left() or 'not known yet'}")

    def say(self, text: str) -> None:
        """Print a line, on a terminal above the rows."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, name: str, warnings: Iterable[str]) -> None:
        """Print warnings about a row's work, each once."""
        for warning in warnings:
            if (name, warning) not in self._warned:
                self._warned.add((name, warning))
                self.say(f"  {name}: warning: {warning}")

    def _all_of_it(self) -> str:
        """The time that the whole job still takes, where there is one and it is known."""
        left = self._job.left() if self._job else None
        return "" if left is None else f", all of it: about {_clock(left)} left"

    def _begun(self, name: str) -> str:
        """How a row's line begins."""
        row = self._rows[name]
        return f"  {name}: {row.state and f'{row.state} '}{row.done}/{row.total}{self._unit}"

    def _table(self) -> RenderableType:
        """All rows, in 80 columns: a bar, or the state where rows have one."""
        table = Table.grid(padding=(0, 1))
        for _ in range(4):
            table.add_column(no_wrap=True)
        table.add_column()
        for name, row in self._rows.items():
            bar = ProgressBar(row.total, row.done, width=8)
            step = f"{row.done}/{row.total}" if row.total else ""
            left = row.left()
            clock = f"{left} left" if left else row.took()
            table.add_row(Text(f"  {name}"), row.state or bar, step, clock, Text(row.note))
        if told := self._all_of_it():
            return Group(table, Text(f" {told.removeprefix(',')}"))
        return table


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"

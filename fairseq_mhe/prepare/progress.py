"""How preparation looks on the screen: a bar for each step, or lines where there is no terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from fairseq_mhe.prepare.steps import Report

TITLES = {
    "clean": "check, tokenise, clean",
    "learn": "learn subwords",
    "segment": "split into subwords",
    "binarise": "binarise",
}
DRAW_EVERY = 0.1  # seconds
LINE_EVERY = 15.0  # seconds between two lines where there is no terminal


@contextlib.contextmanager
def shown_progress() -> Iterator[Report]:
    """Progress on stderr, which moves with the yielded `Report`."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines().report
        return
    # No thread of its own: worker processes are forked while the bars are shown.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, auto_refresh=False) as bars:
        tasks: dict[str, TaskID] = {}
        drawn = 0.0

        def report(step: str, done: int, total: int) -> None:
            nonlocal drawn
            if step not in tasks:
                tasks[step] = bars.add_task(TITLES.get(step, step), total=total)
            bars.update(tasks[step], completed=done, total=total)
            if (
                time.monotonic() - drawn >= DRAW_EVERY
            ):  # drawing takes longer than what many a report tells of
                drawn = time.monotonic()
                bars.refresh()

        yield report


class Lines:
    """A line when a step is finished, and in a long one now and then: for logs."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._finished: set[str] = set()
        self._last_line = time.monotonic()

    def report(self, step: str, done: int, total: int) -> None:
        """Print ``done`` of ``total``, where it is time to."""
        now = time.monotonic()
        begun = self._begun.setdefault(step, now)
        if step in self._finished or (done < total and now - self._last_line < LINE_EVERY):
            return
        if done == total:
            self._finished.add(step)
        self._last_line = now
        took = timedelta(seconds=round(now - begun))
        print(f"{TITLES.get(step, step)} {done}/{total} {took}", file=sys.stderr, flush=True)

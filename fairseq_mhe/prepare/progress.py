"""How preparation looks on the screen: a bar for each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fairseq_mhe.prepare.steps import Report

TITLES = {
    "clean": "check, tokenise, clean",
    "learn": "learn subwords",
    "segment": "split into subwords",
    "binarise": "binarise",
}


@contextlib.contextmanager
def shown_progress() -> Iterator[Report]:
    """Bars on stderr that move with the yielded `Report`; without a terminal, one line a step at the end."""
    # No thread of its own: worker processes are forked while the bars are shown.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bars:
        tasks: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(TITLES.get(step, step), total=total)
            bars.update(tasks[step], completed=done, total=total)
            bars.refresh()

        yield report

"""The steps of a preparation, as people read them on the board."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.manifest import Report

TITLES = {
    "clean": "check, tokenise, clean",
    "learn": "learn subwords",
    "segment": "split into subwords",
    "binarise": "binarise",
}


@contextlib.contextmanager
def shown_progress() -> Iterator[Report]:
    """Progress on stderr, which moves with the yielded `Report`."""
    with Board() as board:
        yield lambda step, done, total: board.report(TITLES.get(step, step), done, total)

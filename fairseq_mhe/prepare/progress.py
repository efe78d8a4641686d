"""The steps of a preparation, as people read them on the board."""

import contextlib
from collections.abc import Callable, Iterator

from fairseq_mhe.common.progress import Board

# step, lines done, lines in all; done == total says that the step is finished
Report = Callable[[str, int, int], None]
TITLES = {
    "clean": "check, tokenise, clean",
    "learn": "learn subwords",
    "segment": "split into subwords",
    "binarise": "binarise",
}


def silent(step: str, done: int, total: int) -> None:
    """A `Report` to nobody."""


@contextlib.contextmanager
def shown_progress() -> Iterator[Report]:
    """Progress on stderr, which moves with the yielded `Report`."""
    with Board() as board:
        yield lambda step, done, total: board.report(TITLES.get(step, step), done, total)

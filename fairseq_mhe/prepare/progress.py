"""The progress of a preparation's steps, for people."""

import contextlib
from collections.abc import Callable, Iterator

from fairseq_mhe.common.progress import Board

# step, lines done, lines in all; done == total says that the step is finished
Report = Callable[[str, int, int], None]


def silent(step: str, done: int, total: int) -> None:
    """A `Report` to nobody."""


@contextlib.contextmanager
def shown_progress() -> Iterator[Report]:
    """Progress on stderr, which moves with the yielded `Report`."""
    with Board() as board:
        yield board.update

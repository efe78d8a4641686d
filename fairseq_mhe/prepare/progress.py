"""The progress of a preparation's steps, for people."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from fairseq_mhe.common.progress import Board

_board: ContextVar[Board | None] = ContextVar("board", default=None)


@contextlib.contextmanager
def shown_progress() -> Iterator[None]:
    """Show on stderr what the block reports by `report`."""
    with Board() as board:
        token = _board.set(board)
        try:
            yield
        finally:
            _board.reset(token)


def report(step: str, done: int, total: int) -> None:
    """``done`` of a step's ``total`` lines are done; not shown outside of `shown_progress`."""
    board = _board.get()
    if board is not None:
        board.update(step, done, total)

"""The one kind of error that a user's input can cause, and how it reaches the screen as one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class UserError(Exception):
    """Bad input. The message names what is wrong, where, and what to do; it is shown without a traceback."""


@contextlib.contextmanager
def one_clear_line(*also: type[Exception]) -> Iterator[None]:
    """Inside fairseq's own commands, turn bad input into one line on stderr and a non-zero exit.

    fairseq-train and its siblings show a traceback for every exception but ``SystemExit``, so at
    the places where fairseq calls us the error becomes one. ``also`` names further exception types
    whose message is already clear.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (UserError, *also)):
            raise SystemExit(f"fairseq-mhe: error: {error}") from None
        raise

"""The one kind of error that a user's input can cause, and how it is shown as one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

#: What the line begins with; logs of fairseq's commands are searched for it.
ERROR_PREFIX = "fairseq-mhe: error: "


class UserError(Exception):
    """Bad input: the message says what is wrong, where, and what to do; no traceback is shown."""


class ErrorExit(SystemExit):
    """The end of a command that fairseq runs, with one line on stderr and a non-zero exit status.

    fairseq-train and its siblings show a traceback for every exception but ``SystemExit``.
    ``message`` is the line without its prefix, for callers that go on.
    """

    def __init__(self, message: object) -> None:
        super().__init__(f"{ERROR_PREFIX}{message}")
        self.message = str(message)


@contextlib.contextmanager
def one_clear_line(*also: type[Exception]) -> Iterator[None]:
    """Turn bad input into an `ErrorExit`; at the places where fairseq calls us.

    ``also``: further types of exceptions whose message is already clear.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (UserError, *also)):
            raise ErrorExit(error) from None
        raise

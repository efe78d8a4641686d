"""The one kind of error that a user's input can cause, and how it is shown as one line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

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


def exit_status(name: str, command: Callable[[], int | None]) -> int:
    """Run a command; bad input ends in one line and exit status 2, Ctrl-C in 130.

    ``name``: what was typed, which the line begins with.
    """
    try:
        return command() or 0
    except UserError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        told = "stopped; run the same command again to go on from here"
        print(f"{name}: {told}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1

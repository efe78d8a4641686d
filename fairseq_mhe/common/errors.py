"""Errors that a user's input causes, and how commands show them as one line."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

#: Begins the error line of a fairseq command; runs/processes.py removes it from messages.
ERROR_PREFIX = "fairseq-mhe: error: "


def one_line(message: object) -> str:
    """Return a message as one line and escape control characters, which terminals would obey."""
    lines = map(str.strip, str(message).splitlines())
    text = " ".join(filter(None, lines))
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


class UserError(Exception):
    """Bad input. The message says in one line what is wrong, where, and what to do."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class ErrorExit(SystemExit):
    """Ends a command of fairseq's with one line; any other exception would show a traceback."""

    def __init__(self, message: object) -> None:
        self.message = one_line(message)
        super().__init__(f"{ERROR_PREFIX}{self.message}")


@contextlib.contextmanager
def one_clear_line() -> Iterator[None]:
    """Turn a UserError or ValueError into an `ErrorExit`, in code of ours that fairseq calls."""
    try:
        yield
    except (UserError, ValueError) as error:
        raise ErrorExit(error) from None


def exit_status(name: str, command: Callable[[], int | None]) -> int:
    """Run a command and return its exit status: 2 after UserError or OSError, 130 after Ctrl-C."""
    try:
        try:
            return command() or 0
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: stopped; run the same command again to finish", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _discard_output()
        return 1
    except OSError as error:
        where = error.filename or "standard output"
        reason = error.strerror or error
        print(one_line(f"{name}: error: {where}: {reason}"), file=sys.stderr)
        _discard_output()
        return 2


def _discard_output() -> None:
    """Redirect standard output to /dev/null, because Python flushes it at exit and fails again."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Errors that a user's input causes, and how commands show them as one line."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

#: Begins the error line of a fairseq command; runs/processes.py removes it from messages.
ERROR_PREFIX = "fairseq-mhe: error: "


def one_line(message: object) -> str:
    """Return a message as one line and escape control characters, which terminals would obey."""
    lines = map(str.strip, str(message).splitlines())
    text = " ".join(filter(None, lines))
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


class UserError(ValueError):
    """Bad input. The message says in one line what is wrong, where, and what to do."""

    def __str__(self) -> str:
        return one_line(super().__str__())


def reason_of(error: OSError) -> str:
    """Return what has happened, and what to do if a disk is full."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = ": make room and give the same command again" if full else ""
    return f"{error.strerror or error}{advice}"


@contextlib.contextmanager
def one_clear_line() -> Iterator[None]:
    """Turn a ValueError about options into a UserError, which commands show as one line."""
    try:
        yield
    except ValueError as error:
        raise UserError(error) from None


def show_as_one_line() -> None:
    """Let a UserError end this process with one line and status 1; for fairseq's commands."""
    show_traceback = sys.excepthook

    def show(kind: Any, error: BaseException, traceback: Any) -> None:
        cause: BaseException | None = error
        while cause and not isinstance(cause, UserError):
            # fairseq's trainer raises an exception of its own in place of the cause.
            cause = cause.__cause__ or cause.__context__
        if cause:
            print(f"{ERROR_PREFIX}{cause}", file=sys.stderr)
        else:
            show_traceback(kind, error, traceback)

    sys.excepthook = show
    # Otherwise hydra prints a traceback itself.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")


def exit_status(name: str, command: Callable[[], int | None]) -> int:
    """Run a command and return its exit status: 2 after UserError or OSError, 130 after Ctrl-C."""
    try:
        replace_closed_streams()
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            # A terminal that is not UTF-8 lacks characters such as ±.
            sys.stdout.reconfigure(errors="backslashreplace")
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
        print(one_line(f"{name}: error: {where}: {reason_of(error)}"), file=sys.stderr)
        _discard_output()
        return 2
    except RuntimeError as error:
        if "Symlink loop" not in str(error):  # pathlib's
            raise
        print(f"{name}: error: {one_line(error)}; give another path", file=sys.stderr)
        return 2


def replace_closed_streams() -> None:
    """Open /dev/null for closed standard streams; UserError if standard output is one of them.

    Otherwise the next file that is opened would get a stream's number, and with it what libraries
    print.
    """
    output_is_closed = sys.stdout is None
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if output_is_closed:
        raise UserError(
            "standard output is closed: redirect it to a file or to /dev/null"
        )


def _discard_output() -> None:
    """Redirect standard output to /dev/null, because Python flushes it at exit and fails again."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""The one kind of error that a user's input can cause, and how it is shown as one line."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

#: What the line begins with; logs of fairseq's commands are searched for it.
ERROR_PREFIX = "fairseq-mhe: error: "


def one_line(message: object) -> str:
    """A message as one line, whose control characters are written out: no terminal obeys them."""
    lines = map(str.strip, str(message).splitlines())
    text = " ".join(filter(None, lines))
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


class UserError(Exception):
    """Bad input: one clean line says what is wrong, where, and what to do, without a traceback."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class ErrorExit(SystemExit):
    """Ends a command of fairseq's in one line, where any other exception shows a traceback."""

    def __init__(self, message: object) -> None:
        self.message = one_line(message)
        super().__init__(f"{ERROR_PREFIX}{self.message}")


@contextlib.contextmanager
def one_clear_line(*also: type[Exception]) -> Iterator[None]:
    """Turn bad input, or ``also`` other clear messages, into an `ErrorExit` where fairseq calls."""
    clear: tuple[type[Exception], ...] = (UserError, *also)
    try:
        yield
    except clear as error:
        raise ErrorExit(error) from None


def exit_status(name: str, command: Callable[[], int | None]) -> int:
    """Run a command; bad input and what the system refuses end in one line and 2, Ctrl-C in 130."""
    try:
        try:
            return command() or 0
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: stopped; run the same command again to resume", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _discard_output()
        return 1
    except OSError as error:
        where = error.filename or "what was printed"
        reason = error.strerror or error
        print(one_line(f"{name}: error: {where}: {reason}"), file=sys.stderr)
        _discard_output()
        return 2


def _discard_output() -> None:
    """Python writes what is left at its end, and would fail again."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

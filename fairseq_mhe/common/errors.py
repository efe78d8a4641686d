"""The one kind of error that a user's input can cause, and how it is shown as one line."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator

#: What the line begins with; logs of fairseq's commands are searched for it.
ERROR_PREFIX = "fairseq-mhe: error: "
_LINE_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")


def one_line(message: object) -> str:
    """A message as one line: line breaks become spaces, control characters are written out.

    So a terminal obeys no escape code of a name or text in the message.
    """
    text = _LINE_BREAKS.sub(" ", str(message).strip())
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


class UserError(Exception):
    """Bad input: the message says what is wrong, where, and what to do; no traceback is shown.

    As a string it is always one clean line.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


class ErrorExit(SystemExit):
    """The end of a command that fairseq runs, with one line on stderr and a non-zero exit status.

    fairseq-train and its siblings show a traceback for every exception but ``SystemExit``.
    ``message`` is the line without its prefix, for callers that go on.
    """

    def __init__(self, message: object) -> None:
        self.message = one_line(message)
        super().__init__(f"{ERROR_PREFIX}{self.message}")


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

    So does what the system refuses: a full disk, a device that takes no output.
    ``name``: what was typed, which the line begins with.
    """
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

"""Run fairseq's commands as child processes: log them, explain failures, leave no orphans."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import fairseq_mhe
from fairseq_mhe.common import child
from fairseq_mhe.common.cpu import tuning
from fairseq_mhe.common.errors import ERROR_PREFIX, UserError

#: The environment variable that names a --user-dir of the user's own, for every command.
OWN_USER_DIR = "FAIRSEQ_MHE_USER_DIR"
_MIN_FREE_BYTES = 1 << 20  # a disk with less free space counts as full
#: The system's message, and the messages of torch when it could not write all of a file.
_SIGNS_OF_A_FULL_DISK = (os.strerror(errno.ENOSPC), "unexpected pos", "iostream error")
#: A line of a log that says why the process failed.
_ERROR_LINE = re.compile(
    r"^(?:[\w.]*(?:Error|Exception|Interrupt)\b|fairseq-mhe: error|\S+: error:|Exception:)"
)
#: A warning or error in fairseq's log: date | LEVEL | logger | message; tracebacks do not match.
_WARNING = re.compile(
    r"(?m)^\d{4}-\d\d-\d\d [\d:]+ \| (?:WARNING|ERROR|CRITICAL) \| \S+ \| ((?!Traceback).*)"
)


def user_dir() -> Path:
    """Return fairseq's --user-dir: this package, or the user's own folder, which imports it."""
    return Path(os.environ.get(OWN_USER_DIR) or Path(fairseq_mhe.__file__).parent)


class Child:
    """A running ``python -m MODULE ARGUMENTS``, which ends when this process ends or is killed."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        threads: int,
        headline: str = "",
        environment: Mapping[str, str] = {},
    ) -> None:
        """Start the process; ``log`` gets the line ``headline`` and then the output."""
        self.log = log
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        with log.open("ab") as output:
            output.write(f"--- {headline}\n".encode())
            output.flush()
            self._offset = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-P", child.__file__, module, *arguments],
                stdin=subprocess.PIPE,  # closes with this process, which ends the child
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **tuning(),
                    **limits,
                    "PYTHONUNBUFFERED": "1",
                    **environment,
                },
            )

    def running(self) -> bool:
        return self._process.poll() is None

    def new_lines(self) -> list[str]:
        """Return the complete lines logged since the last call."""
        with self.log.open("rb") as stream:
            stream.seek(self._offset)
            *whole, rest = stream.read().split(b"\n")
            self._offset = stream.tell() - len(rest)
        return [line.decode("utf-8", "replace") for line in whole]

    def stop(self) -> None:
        """Kill the process; a later start resumes from the checkpoints that it has saved."""
        self._process.kill()
        self._process.wait()

    def check(self, what: str) -> None:
        """Raise UserError with ``what``, the reason and the log, if the process has failed."""
        if code := self._process.poll():
            reason = self._reason(code)
            raise UserError(f"{what} failed: {reason}; the whole log: {self.log}")

    def _reason(self, code: int) -> str:
        """Return in one line why the process ended with exit status ``code``."""
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (the memory may have run out)" if name == "SIGKILL" else ""
            return f"killed by {name}{hint}"
        text = self.log.read_text("utf-8", "replace")
        lines = list(filter(None, map(str.strip, text.split("\n"))))
        errors = list(filter(_ERROR_LINE.match, lines))
        reason = (errors or lines)[-1].removeprefix(ERROR_PREFIX)
        is_full = shutil.disk_usage(self.log.parent).free < _MIN_FREE_BYTES
        if is_full or any(sign in reason for sign in _SIGNS_OF_A_FULL_DISK):
            return "No space left on device: make room and give the same command again"
        # An error of argparse may list 170 architectures.
        return textwrap.shorten(reason, 500, placeholder=" ...")


def logged_warnings(lines: Iterable[str]) -> list[str]:
    """Return the warnings and errors in lines of fairseq's log."""
    return _WARNING.findall("\n".join(lines))

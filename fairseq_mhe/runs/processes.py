"""fairseq's commands as child processes: their logs, what ended them, no orphans."""

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
from fairseq_mhe.common.errors import ERROR_PREFIX, UserError

#: The environment variable that names a --user-dir of the user's own, for every command.
OWN_USER_DIR = "FAIRSEQ_MHE_USER_DIR"
_LEAST_FREE = 1 << 20  # bytes; a disk that has less is full
#: The system's words, and those of torch's writers for a file that ended early.
_SIGNS_OF_A_FULL_DISK = (os.strerror(errno.ENOSPC), "unexpected pos", "iostream error")
_ERROR_LINE = re.compile(
    r"^(?:[\w.]*(?:Error|Exception|Interrupt)\b|fairseq-mhe: error|\S+: error:|Exception:)"
)
#: A warning or error as fairseq logs it: date | LEVEL | logger | message, but no traceback.
_WARNING = re.compile(
    r"\d{4}-\d\d-\d\d [\d:]+ \| (?:WARNING|ERROR|CRITICAL) \| \S+ \| ((?!Traceback).*)"
)


def user_dir() -> Path:
    """fairseq's --user-dir: the package, or the user's own, which imports it."""
    return Path(os.environ.get(OWN_USER_DIR) or Path(fairseq_mhe.__file__).parent)


class Child:
    """A running ``python -m MODULE ARGUMENTS``; it dies with this process, by kill -9 too."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        threads: int,
        headline: str = "",
        environment: Mapping[str, str] = {},
    ) -> None:
        """``headline``: a line of the log before the output."""
        self.log = log
        fixed = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        with log.open("ab") as output:
            output.write(f"--- {headline}\n".encode())
            output.flush()
            self._unread = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-P", child.__file__, module, *arguments],
                stdin=subprocess.PIPE,  # which tells the child when this process has ended
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **fixed, "PYTHONUNBUFFERED": "1", **environment},
            )

    def running(self) -> bool:
        return self._process.poll() is None

    def failed(self) -> bool:
        return bool(self._process.poll())

    def new_lines(self) -> list[str]:
        """The whole lines logged since the last call."""
        with self.log.open("rb") as stream:
            stream.seek(self._unread)
            *whole, rest = stream.read().split(b"\n")
            self._unread = stream.tell() - len(rest)
        return [line.decode("utf-8", "replace") for line in whole]

    def stop(self) -> None:
        """End it at once: what it had saved is whole, and a later start goes on from there."""
        self._process.kill()
        self._process.wait()

    def check(self, what: str) -> None:
        """Wait for the end; raises UserError with ``what`` failed, why, and the log."""
        code = self._process.wait()
        if code:
            raise UserError(
                f"{what} failed: {self._reason(code)}; the whole log: {self.log}"
            )

    def _reason(self, code: int) -> str:
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (the memory may have run out)" if name == "SIGKILL" else ""
            return f"killed by {name}{hint}"
        text = self.log.read_text("utf-8", "replace")
        lines = list(filter(None, map(str.strip, text.split("\n"))))
        errors = list(filter(_ERROR_LINE.match, lines))
        reason = (errors or lines)[-1].removeprefix(ERROR_PREFIX)
        free = shutil.disk_usage(self.log.parent).free
        was_cut = not errors or not text.endswith("\n")
        is_full = was_cut and free < _LEAST_FREE  # then the log is not whole either
        if is_full or any(sign in reason for sign in _SIGNS_OF_A_FULL_DISK):
            return "No space left on device: make room and give the same command again"
        # argparse's may list 170 architectures.
        return textwrap.shorten(reason, 500, placeholder=" ...")


def logged_warnings(lines: Iterable[str]) -> list[str]:
    """The warnings in lines of a log of fairseq's."""
    return [match[1] for line in lines if (match := _WARNING.match(line))]

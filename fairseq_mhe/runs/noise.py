"""Which of fairseq's log lines a user should see: real warnings, not what libraries say about each other's code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: A warning as Python prints it: path:line: Category: message.
PYTHON_WARNING = re.compile(
    r"^(?P<file>\S.*?):(?P<line>\d+): (?P<category>\w*Warning): ?(?P<message>.*)$"
)
#: A warning or error as fairseq logs it: date | LEVEL | logger | message.
LOGGED_WARNING = re.compile(
    r"^\d{4}-\d\d-\d\d [\d:]+ \| (?:WARNING|ERROR|CRITICAL) \| (?P<logger>\S+) \| (?P<message>.*)$"
)

#: What fairseq 0.12, hydra 1.3 and torch 2.13 print at each start, by the beginning of the message.
NOISE = (
    "`torch.jit.script` is deprecated",
    "hydra.experimental.initialize() is no longer experimental",
    "hydra.experimental.compose() is no longer experimental",
    "The version_base parameter is not specified",
    "In 'config': Usage of deprecated keyword in package header",
    "'config' is validated against ConfigStore schema with the same name",
    "The strict flag in the compose API is deprecated",
    # True of every machine without a GPU; fairseq always asks for pinned memory.
    "'pin_memory' argument is set as true but no accelerator is found",
    "`torch.cuda.amp.autocast(args...)` is deprecated",
    "`torch.cuda.amp.GradScaler(args...)` is deprecated",
)


def real_warnings(lines: Iterable[str]) -> Iterator[str]:
    """The warnings among the lines of a log of fairseq's, one line each, without the known noise.

    Where Python's own line says nothing (a message that begins with a line break), the next line is
    the message.
    """
    unfinished = False
    for line in lines:
        if unfinished:
            message, unfinished = line.strip(), False
        elif match := PYTHON_WARNING.match(line) or LOGGED_WARNING.match(line):
            message = match["message"].strip()
            unfinished = not message
        else:
            continue
        if message and not message.startswith(NOISE):
            yield message

"""The tasks of GLUE, SuperGLUE and SQuAD, from tasks.yaml: columns, labels, metrics, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# What a task asks for.
CLASSES = "classes"  #: a class, or a number, of one or two texts
CHOICE = "choice"  #: which of two texts goes with a third
WORDS = "words"  #: a class of two marked spans
CANDIDATES = "candidates"  #: which candidate fills a gap
ANSWERS = "answers"  #: an answer within a passage


@dataclass(frozen=True)
class Task:
    """One task.

    ``columns``: of its texts; ``labels``: all that there are, in the order of classes, or None
    where a number is predicted; ``metrics``: names of `runs.understanding`, the mean of which is
    the task's score; ``label``: column; ``scored``: the official names of the sets that are scored;
    ``header``: columns of a file without a header; ``form``: what is asked for; ``folder``: its
    name in the official archive, where SPLIT and ``suffix`` name a split's file; ``files``: the
    published ones, as `RemoteFile` has them.
    """

    name: str
    suite: str
    columns: Sequence[str]
    labels: Sequence[str] | None = None
    metrics: Sequence[str] = ("accuracy",)
    label: str = "label"
    scored: Sequence[str] = ("dev",)
    header: Sequence[str] = ()
    form: str = CLASSES
    folder: str = ""
    suffix: str = ".tsv"
    files: Sequence[Mapping[str, Any]] = ()

    @property
    def subsets(self) -> dict[str, str]:
        """fairseq's name of each scored set -> the official one."""
        return dict(zip(("valid", "valid1"), self.scored, strict=False))


_SUITES = yaml.safe_load(Path(__file__).with_name("tasks.yaml").read_text("utf-8"))
TASKS = {
    name: Task(name, suite, **facts)
    for suite, tasks in _SUITES.items()
    for name, facts in tasks.items()
}

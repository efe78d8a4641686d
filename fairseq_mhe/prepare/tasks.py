"""The tasks of GLUE, SuperGLUE and SQuAD, from tasks.yaml: columns, labels, metrics, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_mhe.common.files import yaml_beside

# What a task asks for.
CLASSES = "classes"  #: a class, or a number, of one or two texts
CHOICE = "choice"  #: which of two texts goes with a third
WORDS = "words"  #: a class of two marked spans
CANDIDATES = "candidates"  #: which candidate fills a gap
ANSWERS = "answers"  #: an answer within a passage


@dataclass(frozen=True)
class Task:
    """One task, whose score is the mean of its metrics."""

    name: str
    suite: str
    columns: Sequence[str]  # of its texts
    labels: Sequence[str] | None = None  # in the order of classes; None: for a number
    metrics: Sequence[str] = ("accuracy",)  # names of `runs.understanding`
    label: str = "label"  # column
    scored: Sequence[str] = ("dev",)  # official names of the sets that are scored
    header: Sequence[str] = ()  # columns of a file without a header
    form: str = CLASSES
    folder: str = ""  # in the official archive, where SPLIT and suffix name a file
    suffix: str = ".tsv"
    files: Sequence[Mapping[str, Any]] = ()  # published, as `RemoteFile` has them

    @property
    def subsets(self) -> dict[str, str]:
        """fairseq's name of each scored set -> the official one."""
        return dict(zip(("valid", "valid1"), self.scored, strict=False))


_SUITES = yaml_beside(__file__, "tasks.yaml")
TASKS = {
    name: Task(name, suite, **facts)
    for suite, tasks in _SUITES.items()
    for name, facts in tasks.items()
}

"""The tasks of GLUE, SuperGLUE and SQuAD, from tasks.yaml: columns, labels, metrics, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_mhe.common.files import yaml_beside

# What the model of a task predicts.
CLASSES = "classes"  #: a class, or a number, for one or two texts
CHOICE = "choice"  #: which of two texts fits a third one
WORDS = "words"  #: a class for two marked spans
CANDIDATES = "candidates"  #: which candidate fills a gap
ANSWERS = "answers"  #: the span of a passage that answers a question


@dataclass(frozen=True)
class Task:
    """One task; its score is the mean of its metrics."""

    name: str
    suite: str
    columns: Sequence[str]  # the columns of the texts
    labels: Sequence[str] | None = None  # by class index; None if the target is a number
    metrics: Sequence[str] = ("accuracy",)  # as `runs.understanding` names them
    label: str = "label"  # the column of the label
    scored: Sequence[str] = ("dev",)  # official names of the sets to score
    header: Sequence[str] = ()  # the columns, if the files have no header line
    form: str = CLASSES
    folder: str = ""  # of the files (train.tsv) in the official archive
    suffix: str = ".tsv"
    files: Sequence[Mapping[str, Any]] = ()  # published files: arguments of `RemoteFile`

    @property
    def subsets(self) -> dict[str, str]:
        """fairseq's name of each scored set -> its official name."""
        return dict(zip(("valid", "valid1"), self.scored, strict=False))


_SUITES = yaml_beside(__file__, "tasks.yaml")
TASKS = {
    name: Task(name, suite, **facts)
    for suite, tasks in _SUITES.items()
    for name, facts in tasks.items()
}

"""The tasks of GLUE, SuperGLUE and SQuAD: download their official files and prepare them."""

import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fairseq_mhe.common.archives import extract
from fairseq_mhe.common.arguments import integer, option
from fairseq_mhe.prepare.corpora.known import Downloads
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import Task
from fairseq_mhe.prepare.text import read_lines, write_lines


@dataclass(frozen=True)
class OfficialTask(Downloads):
    """Prepare a task of GLUE, SuperGLUE or SQuAD, in the subwords of a language model."""

    folder: Path | None = option(
        None,
        "folder of the unpacked official files, of this task or of all, to skip the download",
        type=Path,
    )
    text: Path = option(
        None, "the language model's data folder", type=Path, required=True, metavar="DATA"
    )
    out: Path = option(
        None, "new task folder (default: runs/TASK-data)", type=Path, metavar="DIR"
    )
    block: int = integer(512, "tokens of an example, at most the model's positions", 8)

    def prepare(self, task: Task) -> Path:
        out = self.out or Path(f"runs/{task.name}-data")
        folder = self.folder or replace(self, out=out).obtain(task)
        return prepare_task(task, folder, self.text, out, self.block)

    def obtain(self, task: Task) -> Path:
        """Download a task's official files, return their folder; raises UserError as `unpack`."""
        self.unpack(task.files, partial(_unpack, task))
        return self.original


def _unpack(task: Task, paths: list[Path], work: Path) -> None:
    if task.name == "mrpc":
        _write_mrpc(paths[0], paths[1], work)
    elif task.suite == "squad":
        for path in paths:
            shutil.copy(path, work)
    else:
        splits = ("train", *task.scored)
        names = [f"{task.folder}/{split}{task.suffix}" for split in splits]
        extract(paths[0], work, names)


def _write_mrpc(table: Path, identifiers: Path, work: Path) -> None:
    """Write MRPC's train and dev sets; ``identifiers``: the pairs of GLUE's dev set."""
    dev_pairs = set(read_lines(identifiers))
    header, *rows = read_lines(table)
    sets: dict[str, list[str]] = {"train": [header], "dev": [header]}
    for row in rows:
        _, first, second, *_ = row.split("\t")
        name = "dev" if f"{first}\t{second}" in dev_pairs else "train"
        sets[name].append(row)
    for name, lines in sets.items():
        write_lines(work / f"{name}.tsv", lines)

"""Make and open the data folder of a task, in the subwords of a language model."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import fairseq_mhe
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, sha256, write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import TASK, TEXT, Counts, open_manifest
from fairseq_mhe.prepare.steps import binarise
from fairseq_mhe.prepare.task_files import task_file
from fairseq_mhe.prepare.task_inputs import read_inputs
from fairseq_mhe.prepare.tasks import ANSWERS, CHOICE, TASKS, Task
from fairseq_mhe.prepare.text import read_whole, write_lines


@dataclass(frozen=True)
class TaskFolder:
    """The data folder of a task."""

    folder: Path
    task: Task
    block: int  # limit of the tokens of an example
    text_fingerprint: str  # of the language model's data folder
    training_examples: int
    fingerprint: str  # of this folder

    @property
    def identity(self) -> dict[str, Any]:
        """What the settings of a run record about its data."""
        facts = {"fingerprint": self.fingerprint, "block": self.block}
        return {"text": self.text_fingerprint, **facts}

    @property
    def binary(self) -> Path:
        """The folder that fairseq reads: input0, input1 and label, each with dict.txt."""
        return self.folder / "bin"

    @property
    def official(self) -> Path:
        """The path of SQuAD's official file of the scored set."""
        return self.folder / "raw" / "valid.official.json"

    def examples(self, subset: str) -> Any:
        """Read the `Inputs.facts` of a scored set."""
        return read_json(self.folder / "raw" / f"{subset}.examples.json")


def open_task(folder: Path) -> TaskFolder:
    """Open a complete folder of `prepare_task`; raises UserError as `open_data`."""
    data = open_data(folder, TASK)
    task, block, text = (data.manifest[key] for key in ("task", "block", "text"))
    training = data.manifest["lines"]["train"]
    return TaskFolder(data.folder, TASKS[task], block, text, training, data.fingerprint)


def open_tasks(folders: Iterable[Path]) -> list[TaskFolder]:
    """Open folders of tasks; raises UserError as `open_task`, or if two hold the same task."""
    tasks = [open_task(folder) for folder in folders]
    for task, other in combinations(tasks, 2):
        if task.task is other.task:
            both = f"{task.folder} and {other.folder} are both of {task.task.name}"
            raise UserError(f"{both}: name one of them in --tasks")
    return tasks


def prepare_task(task: Task, source: Path, text: Path, out: Path, block: int) -> Path:
    """Make the folder ``out`` of a task from its official files in ``source``, and return it.

    ``text``: the language model's data folder; ``block`` and errors: as in `read_inputs`.
    """
    data = open_data(text, TEXT)
    splits = {"train": "train", **task.subsets}
    files = {name: task_file(task, source, split) for name, split in splits.items()}
    facts = {"task": task.name, "block": block, "text": data.fingerprint}
    inputs = {name: sha256(path) for name, path in files.items()}
    with open_manifest(out, TASK, facts) as manifest:
        action = partial(_binarise, task, files, data, block)
        counts = manifest.run("binarise", {**facts, "inputs": inputs}, action)
        lines = {name: count["examples"] for name, count in counts.items()}
        manifest.complete(lines=lines)
    for name, count in counts.items():
        parts = [f"{number:,} {word}" for word, number in count.items() if number]
        say(f"{task.name} {name}: {', '.join(parts)}")
    return out


def _binarise(
    task: Task, files: dict[str, Path], data: DataFolder, block: int, work: Path
) -> Counts:
    """Write the examples of each split, and what scoring them needs; return their counts."""
    fairseq_mhe.register()
    from fairseq.data import Dictionary

    binary, raw = work / "bin", work / "raw"
    raw.mkdir()
    words = Dictionary.load(str(data.binary / "dict.txt"))
    labels = Dictionary()
    for label in task.labels or ():
        labels.add_symbol(label)
    dictionaries = {f"input{n}": words for n in range(len(task.columns))}
    dictionaries["label"] = labels
    for name, dictionary in dictionaries.items():
        (binary / name).mkdir(parents=True)
        dictionary.save(str(binary / name / "dict.txt"))
    processing, counts = data.processing(), {}
    for split, path in files.items():
        inputs = read_inputs(task, path, processing, block, split == "train")
        counts[split] = inputs.counts
        columns = (*inputs.columns, inputs.labels)
        for (name, dictionary), lines in zip(dictionaries.items(), columns, strict=True):
            if name == "label" and (task.labels is None or task.form == CHOICE):
                # fairseq reads these labels as numbers from a text file.
                write_lines(binary / name / f"{split}.label", lines)
            else:
                write_lines(raw / f"{split}.{name}", lines)
                binarise(dictionary, raw / f"{split}.{name}", binary / name / split)
        if inputs.spans:
            (binary / "spans").mkdir(exist_ok=True)
            write_lines(binary / "spans" / f"{split}.spans", inputs.spans)
        if split != "train":
            write_json(raw / f"{split}.examples.json", inputs.facts)
            if task.form == ANSWERS:
                (raw / f"{split}.official.json").write_text(read_whole(path), "utf-8")
    return counts

"""Make and open the data folder of a task, in the subwords of a language model."""

from functools import partial
from pathlib import Path
from typing import Any

import fairseq_mhe
from fairseq_mhe.common.files import read_json, sha256, write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import TASK, TEXT, Counts, open_manifest
from fairseq_mhe.prepare.steps import binarise
from fairseq_mhe.prepare.task_files import task_file
from fairseq_mhe.prepare.task_inputs import read_inputs
from fairseq_mhe.prepare.tasks import ANSWERS, CHOICE, TASKS, Task
from fairseq_mhe.prepare.text import read_whole, write_lines


class TaskFolder(DataFolder):
    """The data folder of a task; its ``binary`` has input0, input1 and label with dict.txt."""

    @property
    def task(self) -> Task:
        """The task, by its name in the manifest."""
        return TASKS[self.manifest["task"]]

    @property
    def identity(self) -> dict[str, Any]:
        """The fingerprints of the language model's text and of this folder, and the block."""
        text, block = self.manifest["text"], self.manifest["block"]
        return {"text": text, "fingerprint": self.fingerprint, "block": block}

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
    return TaskFolder(data.folder, data.languages, data.manifest)


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
        dictionary.save(str(binary / name / "dict.txt"))
    processing, counts = data.processing, {}
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

"""A task's examples as fairseq's sentence_prediction reads them, in a language model's subwords."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, sha256, write_json
from fairseq_mhe.common.forms import Form
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import installed
from fairseq_mhe.prepare.binarise import binarise_with
from fairseq_mhe.prepare.data_folder import TextFolder, open_text
from fairseq_mhe.prepare.manifest import Counts, open_manifest, read_manifest
from fairseq_mhe.prepare.tasks import TASKS, Example, Task, read_task, task_file
from fairseq_mhe.prepare.text import write_lines

#: What a manifest says in "form" of a task.
FORM = "task"
TRAIN = "train"
_EXAMPLES = "examples.json"
_FACTS = Form({"labels": [str], "groups": [str]}, "prepare the task again into another folder")


@dataclass(frozen=True)
class TaskFolder:
    """A prepared task: ``text`` is the fingerprint of the language model's data folder."""

    folder: Path
    task: Task
    block: int
    text: str
    fingerprint: str

    @property
    def binary(self) -> Path:
        """What fairseq reads: input0, input1 and label, each with dict.txt."""
        return self.folder / "bin"

    @property
    def subsets(self) -> dict[str, str]:
        """fairseq's name of each scored set -> the official one."""
        return dict(zip(("valid", "valid1"), self.task.scored, strict=False))

    def examples(self, subset: str) -> dict[str, list[str]]:
        """Labels and groups of a scored set, in order."""
        path = self.folder / "raw" / f"{subset}.{_EXAMPLES}"
        found: dict[str, list[str]] = read_json(path, _FACTS)
        return found


def open_task(folder: Path) -> TaskFolder:
    """A folder that `prepare_task` has finished.

    Raises:
        UserError: it is none, or unfinished.
    """
    manifest = read_manifest(folder.resolve())
    if manifest.get("form") != FORM or manifest.get("task") not in TASKS:
        raise UserError(f"{folder} is no prepared task: give a folder of data-prep/glue.sh")
    if manifest.get("state") != "complete":
        raise UserError(
            f"{folder} is not finished: prepare it again, which goes on from where it was"
        )
    files = {n: e["sha256"] for s in manifest["steps"].values() for n, e in s["files"].items()}
    task = TASKS[manifest["task"]]
    fingerprint = files[f"bin/input0/{TRAIN}.bin"]
    return TaskFolder(folder.resolve(), task, manifest["block"], manifest["text"], fingerprint)


def shortened(parts: Sequence[list[str]], most: int) -> list[list[str]]:
    """Subwords of one or two texts, cut at the longer one's end until all have ``most`` at most."""
    left, *right = parts
    if not right:
        return [left[:most]]
    excess = len(left) + len(right[0]) - most
    first, second = len(left), len(right[0])
    while excess > 0:
        if first >= second:
            first -= 1
        else:
            second -= 1
        excess -= 1
    return [left[:first], right[0][:second]]


def prepare_task(task: Task, source: Path, text: Path, out: Path, block: int) -> Path:
    """Make the folder ``out`` of a task, or what of it is missing.

    Args:
        task: one of ``TASKS``.
        source: the folder of its official files.
        text: the data folder of the language model that is to be fine-tuned.
        out: the folder to make.
        block: the most tokens of an example, its ends and separator counted: the model's positions.

    Raises:
        UserError: a file is missing or bad, or the folder cannot be written.
    """
    if block < 8:
        raise UserError(f"--block is {block}; it must be at least 8")
    data = open_text(text)
    files = {TRAIN: task_file(task, source, TRAIN)}
    names = ("valid", "valid1")
    files |= {
        n: task_file(task, source, split) for n, split in zip(names, task.scored, strict=False)
    }
    heading = {
        "form": FORM,
        "task": task.name,
        "block": block,
        "text": data.fingerprint,
        "versions": installed(("fairseq-mhe", "ve-fairseq", "fairseq", "sentencepiece")),
    }
    made_from = {
        "inputs": {name: sha256(path) for name, path in files.items()},
        "text": data.fingerprint,
        "block": block,
    }
    with open_manifest(out, heading) as steps:
        counts = steps.run("binarise", made_from, partial(_make, task, files, data, block))
        steps.content["lines"] = {name: count["examples"] for name, count in counts.items()}
        steps.write("complete")
    for name, count in counts.items():
        cut = f", {count['truncated']:,} truncated to {block} tokens" if count["truncated"] else ""
        say(f"{task.name} {name}: {count['examples']:,} examples{cut}")
    return out


def _make(task: Task, files: dict[str, Path], data: TextFolder, block: int, work: Path) -> Counts:
    counts: dict[str, Any] = {}
    words, labels = Dictionary.load(str(data.dictionary())), Dictionary()
    for label in task.labels or ():
        labels.add_symbol(label)
    inputs = [f"input{index}" for index in range(len(task.columns))]
    for name in (*inputs, "label"):
        (work / "bin" / name).mkdir(parents=True)
        (words if name != "label" else labels).save(str(work / "bin" / name / "dict.txt"))
    (work / "raw").mkdir()
    for split, path in files.items():
        examples = read_task(task, path)
        texts, truncated = _subwords(examples, data, block)
        for name, lines in zip(inputs, texts, strict=True):
            written = work / "raw" / f"{split}.{name}"
            write_lines(written, lines)
            binarise_with(words, written, work / "bin" / name / split)
        _write_labels(task, [e.label for e in examples], labels, work, split)
        counts[split] = {"examples": len(examples), "truncated": truncated}
        if split != TRAIN:
            facts = {"labels": [e.label for e in examples], "groups": [e.group for e in examples]}
            write_json(work / "raw" / f"{split}.{_EXAMPLES}", facts)
    return counts


def _subwords(
    examples: Sequence[Example], data: TextFolder, block: int
) -> tuple[list[list[str]], int]:
    """Each input's lines in subwords, and how many examples had to be cut."""
    processing = data.processing()
    columns = zip(*(example.texts for example in examples), strict=True)
    segmented = [processing.segment(column) for column in columns]
    # <s> first </s>, and </s> second </s>.
    most = block - (2 if len(segmented) == 1 else 4)
    lines: list[list[str]] = [[] for _ in segmented]
    truncated = 0
    for texts in zip(*segmented, strict=True):
        whole = [text.split() for text in texts]
        parts = shortened(whole, most)
        truncated += parts != whole
        for column, part in zip(lines, parts, strict=True):
            column.append(" ".join(part))
    return lines, truncated


def _write_labels(
    task: Task, found: Sequence[str], labels: Dictionary, work: Path, split: str
) -> None:
    if task.labels is None:  # fairseq reads numbers as text
        write_lines(work / "bin" / "label" / f"{split}.label", found)
        return
    written = work / "raw" / f"{split}.label"
    write_lines(written, found)
    binarise_with(labels, written, work / "bin" / "label" / split)

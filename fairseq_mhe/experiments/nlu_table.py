"""``fairseq-mhe nlu-table``: kinds of attention pre-trained, fine-tuned on tasks, in a table.

Of a causal architecture the table is of the perplexity of the validation text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.finetune import check_data, fine_tune, plan, scored
from fairseq_mhe.experiments.pretrain import KNOWN, add_pretraining, pretrain
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters, cache_bytes
from fairseq_mhe.models.families import ROBERTA, language_archs
from fairseq_mhe.prepare.data_folder import DataFolder, model_dictionary, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import TaskFolder, open_tasks
from fairseq_mhe.report.language_table import perplexity_block, task_blocks
from fairseq_mhe.report.plots import plot_perplexity, plot_tasks
from fairseq_mhe.report.results import differences
from fairseq_mhe.report.table import Table
from fairseq_mhe.runs import devices, slurm
from fairseq_mhe.runs.finetuning import run_name
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.task_scores import commonest_score

#: The paper's, in its order.
_KINDS = ("sha", "mha", "el", "mqa", "skv", "mhe_add", "mhe_mul")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe nlu-table``."""
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=KNOWN, help=", ".join(KNOWN))
    help_ = "folders of data-prep/glue.sh, superglue.sh or squad.sh, one a task (masked models)"
    add("--tasks", type=Path, nargs="+", default=[], metavar="TASK-DATA", help=help_)
    help_ = "kinds of attention, or all (default: %(default)s)"
    kinds: dict[str, Any] = {"type": cells.kinds, "default": ",".join(_KINDS)}
    add("--kinds", metavar="KIND,...", help=help_, **kinds)
    help_ = "seeds of fine-tuning; of a causal model, of its training (default: %(default)s)"
    add("--seeds", type=cells.seeds, default="1,2,3", metavar="N,...", help=help_)
    add("--epochs", type=positive, metavar="N", help="of fine-tuning, not the recipe's")
    add_pretraining(parser)
    devices.add_arguments(parser)
    slurm.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train what is not trained yet, and write and print the table."""
    masked = language_archs()[args.arch] is ROBERTA
    if masked and not args.tasks:
        raise UserError(f"{args.arch} is fine-tuned on tasks: name their folders by --tasks")
    if not masked and (args.tasks or args.epochs):
        raise UserError(
            f"{args.arch} is not fine-tuned, its table is of perplexity: leave --tasks and "
            "--epochs out"
        )
    table = _open_table(args)
    if slurm.asked_for(args):
        args.precision = devices.precision(args)
        words = json.loads(json.dumps(vars(args), default=str))  # paths as text
        waiting = [kind for kind in args.kinds if not table.finished(kind)]
        slurm.submit(
            {kind: {**words, "kinds": [kind]} for kind in waiting}, len(args.kinds), args
        )
        return
    if not args.finished_only:
        table.train(args.kinds, args)
    table.write(args.kinds)


def run_job(job: dict[str, Any]) -> None:
    """All trainings of one kind as a SLURM job; the table is not written, others are at work."""
    args = argparse.Namespace(**job)
    args.out = Path(args.out)
    _open_table(args).train(args.kinds, args)


def _open_table(args: argparse.Namespace) -> LanguageTable:
    """The table of the options, whose tasks must be in the subwords of the text."""
    data, tasks = open_data(Path(args.data), TEXT), open_tasks(map(Path, args.tasks))
    for task in tasks:
        if task.text != data.fingerprint:
            raise UserError(
                f"{task.folder} is not in the subwords of {data.folder}: prepare it with --text "
                f"{data.folder}"
            )
    return LanguageTable(args.arch, data, tasks, args.seeds, output_folder(args.out))


@dataclass(frozen=True)
class LanguageTable:
    """Models of an architecture, tasks and seeds, and their table in the folder ``out`` of runs.

    ``tasks``: none of a causal architecture, whose table is of perplexity.
    """

    arch: str
    data: DataFolder
    tasks: Sequence[TaskFolder]
    seeds: Sequence[int]
    out: Path

    @property
    def path(self) -> Path:
        """The table; beside it, of the same name, values (.json) and picture (.png)."""
        return self.out / ("nlu-table.md" if self.tasks else "perplexity.md")

    def train(self, kinds: Sequence[str], args: argparse.Namespace) -> None:
        """Pre-train all kinds, then fine-tune them on all tasks; finished runs are skipped.

        ``args``: ``epochs``, and the options of `pretrain.add_pretraining` and `devices`.

        Raises:
            UserError: a training failed, or its folder has a run of other settings.
        """
        seeds = [1] if self.tasks else self.seeds
        models = [(kind, number) for kind in kinds for number in seeds]
        pretrain(self.arch, models, self.data, args)
        planned = [
            (plan(self._pretrained(kind)[0], task, number, args), task)
            for kind in kinds
            for task in self.tasks
            for number in self.seeds
        ]
        if planned:
            fine_tune(planned, args)

    def finished(self, kind: str) -> bool:
        """Whether all runs of a kind have their scores.

        Raises:
            UserError: they were trained on other text or examples.
        """
        for folder in self._pretrained(kind):
            if not (folder / "scores.json").exists():
                return False
            check_data(folder, {"fingerprint": self.data.fingerprint}, self.data.folder)
        return all(scored(run, task) for task in self.tasks for run in self._runs(kind, task))

    def write(self, kinds: Sequence[str]) -> None:
        """Write and print the table of the kinds that are finished.

        Raises:
            UserError: none is, or their runs differ in more than seed and attention.
        """
        finished = [kind for kind in kinds if self.finished(kind)]
        if not finished:
            raise UserError(
                f"no model of {self.out} is finished yet: there is nothing to tabulate"
            )
        rows = [self._row(kind) for kind in finished]
        notes = self._notes(finished)
        if unfinished := [kind for kind in kinds if kind not in finished]:
            notes.append(f"Not finished, and left out: {'; '.join(unfinished)}.")
        picture = self.path.with_suffix(".png")
        title = f"{self.arch}, text of {self.data.folder.resolve().name}; {self._seeds}"
        values: dict[str, Any]
        if self.tasks:
            commonest = {task.task.name: commonest_score(task) for task in self.tasks}
            blocks = task_blocks(rows, commonest)
            values = {row["attention"]: row["scores"] for row in rows}
            plot_tasks(values, picture, title)
        else:
            blocks = [perplexity_block(rows)]
            values = {row["attention"]: row["nats"] for row in rows}
            plot_perplexity(rows, picture, title)
        table = Table(self.arch, blocks, notes)
        table.write(self.path, values)
        print(f"{table.markdown()}{self.path}")

    def _row(self, kind: str) -> dict[str, Any]:
        """The row of a kind, as `language_table` takes it."""
        words = len(model_dictionary(self.data.dictionary(), masked=bool(self.tasks)))
        model = build_on_meta(self.arch, kind, words)
        row: dict[str, Any] = {"attention": kind}
        row["attention_parameters"] = attention_parameters(model)
        nats = [read_json(run / "scores.json")["nats"] for run in self._pretrained(kind)]
        if not self.tasks:
            return {
                **row,
                "nats": nats,
                "kv_bytes_per_token": cache_bytes(model).per_target_token,
            }
        row["scores"] = {}
        for task in self.tasks:
            scores = [
                read_json(run / "scores.json")["scores"] for run in self._runs(kind, task)
            ]
            row["scores"][task.task.name] = [of_seed["score"] for of_seed in scores]
        return {**row, "nats": nats[0]}

    def _notes(self, kinds: Sequence[str]) -> list[str]:
        """What the numbers are, and how the models were trained.

        Raises:
            UserError: runs differ in more than seed and attention.
        """
        job = _alike([run for kind in kinds for run in self._pretrained(kind)])
        pretraining = (
            f"{job.training.updates:,} updates of {job.training.batch_tokens:,} blocks of "
            f"{job.training.options['tokens_per_sample']:,} subwords, in {job.training.precision}"
        )
        versions = ", ".join(f"{name} {of}" for name, of in job.config["versions"].items())
        if not self.tasks:
            return [f"Training: {self._seeds}, {pretraining}.", f"{versions}."]
        for task in self.tasks:
            job = _alike([run for kind in kinds for run in self._runs(kind, task)])
        return [
            "A task's score: the mean of its metrics after the last update, on the set that GLUE, "
            "SuperGLUE and SQuAD call dev.",
            "The commonest label: of the training examples; of SQuAD 2.0, no answer.",
            "Pre-training, nats: of what the model is asked for, on the validation text.",
            f"Pre-training: {pretraining}.",
            f"Fine-tuning: {self._seeds}, in {job.training.precision}.",
            f"{versions}.",
        ]

    @property
    def _seeds(self) -> str:
        numbers = ", ".join(map(str, self.seeds))
        if len(self.seeds) == 1:
            return f"seed {numbers}"
        return f"seeds {numbers} (±: standard deviation)"

    def _pretrained(self, kind: str) -> list[Path]:
        """The pre-training of a kind: with tasks one run, else one for each seed."""
        seeds = [1] if self.tasks else self.seeds
        return [self.out / f"{self.arch}-{kind}-seed{number}" for number in seeds]

    def _runs(self, kind: str, task: TaskFolder) -> list[Path]:
        """The fine-tunings of a kind on a task, one for each seed."""
        (start,) = self._pretrained(kind)
        return [self.out / run_name(start, task, number) for number in self.seeds]


def _alike(runs: Sequence[Path]) -> Job:
    """The first of runs that differ in seed and attention alone.

    Raises:
        UserError: they differ in more, so that their numbers make no table.
    """
    first, *others = [read_job(run) for run in runs]
    for other in others:
        if names := differences(first, other):
            raise UserError(
                f"{first.folder} and {other.folder} differ by {', '.join(names)}, so that their "
                "numbers make no table: take one away"
            )
    return first

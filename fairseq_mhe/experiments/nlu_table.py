"""``fairseq-mhe nlu-table``: kinds of attention pre-trained, fine-tuned on tasks, in a table.

Of a causal architecture the table is of the perplexity of the validation text.
"""

import argparse
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.finetune import (
    check_alike,
    check_made_of,
    fine_tune_all,
    plan,
    run_name,
    scored,
    seed_scores,
)
from fairseq_mhe.experiments.pretrain import KNOWN, add_pretraining, nats_in, pretrain, pretrained
from fairseq_mhe.models.counting import attention_parameters, cache_bytes
from fairseq_mhe.models.families import ROBERTA, build_language_on_meta, language_archs
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import TextFolder, model_dictionary, open_text
from fairseq_mhe.prepare.task_folder import TaskFolder, open_tasks
from fairseq_mhe.report.language_table import perplexity_block, task_blocks
from fairseq_mhe.report.plots import plot_perplexity, plot_tasks
from fairseq_mhe.report.table import Block, Table
from fairseq_mhe.runs import devices, slurm
from fairseq_mhe.runs.finetuning import finetuning
from fairseq_mhe.runs.job import read_job
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.task_scores import commonest_score

#: The paper's, in its order.
_KINDS = ("sha", "mha", "el", "mqa", "skv", "mhe_add", "mhe_mul")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe nlu-table``."""
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=KNOWN, help=", ".join(KNOWN))
    told = (
        "folders of data-prep/glue.sh, superglue.sh or squad.sh, one a task; none of a causal model"
    )
    add("--tasks", type=Path, nargs="+", default=[], metavar="TASK-DATA", help=told)
    told = "kinds of attention, or all (default: %(default)s)"
    kinds: dict[str, Any] = {"type": cells.kinds, "default": ",".join(_KINDS)}
    add("--kinds", metavar="KIND,...", help=told, **kinds)
    told = "seeds of fine-tuning; of a causal model, of its training (default: %(default)s)"
    seeds: dict[str, Any] = {"type": cells.seeds, "default": "1,2,3"}
    add("--seeds", metavar="N,...", help=told, **seeds)
    add("--epochs", type=positive, metavar="N", help="of fine-tuning, not the recipe's")
    add_pretraining(parser)
    devices.add_arguments(parser)
    slurm.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train what is not trained yet, and write and print the table."""
    kinds, seeds = args.kinds, args.seeds
    masked = language_archs()[args.arch] is ROBERTA
    if masked != bool(args.tasks):
        raise UserError(
            f"{args.arch} is fine-tuned on tasks: name their folders, --tasks TASK-DATA ..."
            if masked
            else f"{args.arch} is not fine-tuned, its table is of perplexity: leave --tasks out"
        )
    if args.epochs and not masked:
        raise UserError(f"--epochs is of fine-tuning, and {args.arch} is not: leave it out")
    data = open_text(args.data)
    tasks = open_tasks(args.tasks)
    _check_text(tasks, data)
    made = LanguageTable(args.arch, data, tasks, seeds, args.out)
    if slurm.asked_for(args):
        waiting = [kind for kind in kinds if not made.finished(kind)]
        slurm.submit({kind: _job(args, kind) for kind in waiting}, len(kinds), args)
        return
    if args.finished_only:
        made.tabulate(kinds)
    else:
        made.train(kinds, args)
    print(made.path.read_text(encoding="utf-8"), end="")
    print(made.path)


def _check_text(tasks: Sequence[TaskFolder], data: TextFolder) -> None:
    for task in tasks:
        if task.text != data.fingerprint:
            raise UserError(
                f"{task.folder} is not in the subwords of {data.folder}: prepare it with --text "
                f"{data.folder}"
            )


def _job(args: argparse.Namespace, kind: str) -> dict[str, Any]:
    """What `run_job` needs for one kind, beside the devices."""
    names = ("arch", "seeds", "epochs", "updates", "tokens", "batch")
    return {
        "command": "nlu-table",
        "kind": kind,
        "data": str(args.data.resolve()),
        "out": str(args.out.resolve()),
        "tasks": [str(folder.resolve()) for folder in args.tasks],
        "precision": devices.precision(args),
        **{name: getattr(args, name) for name in names},
    }


def run_job(job: dict[str, Any]) -> None:
    """All trainings of one kind as a SLURM job; the table is not written, others are at work."""
    args = argparse.Namespace(**job)
    data, tasks = open_text(Path(args.data)), open_tasks(map(Path, args.tasks))
    made = LanguageTable(args.arch, data, tasks, args.seeds, Path(args.out))
    made.train([args.kind], args, tabulate=False)


class LanguageTable:
    """Models of an architecture, tasks and seeds, and their table in a folder of runs."""

    def __init__(
        self,
        arch: str,
        data: TextFolder,
        tasks: Sequence[TaskFolder],
        seeds: Sequence[int],
        out: Path,
    ) -> None:
        """``tasks``: none of a causal architecture, whose table is of perplexity.

        Raises:
            UserError: the folder cannot be written in.
        """
        self.arch, self.data, self.tasks, self.seeds = arch, data, tasks, seeds
        self.out = output_folder(out)
        #: The table; beside it, of the same name, values (.json) and picture (.png).
        self.path = self.out / ("nlu-table.md" if self.tasks else "perplexity.md")

    def train(self, kinds: Sequence[str], args: argparse.Namespace, tabulate: bool = True) -> None:
        """Train what is not trained yet, side by side; the table is written after each kind.

        ``args``: ``epochs`` where they are not the recipe's, and the options of
        `pretrain.add_pretraining` and `devices`.

        Raises:
            UserError: a training failed, or its folder has a run of other settings.
        """
        seeds = [1] if self.tasks else self.seeds
        every = [(kind, number) for kind in kinds for number in seeds]
        pretrain(self.arch, every, self.data, self.out, args)
        for kind in kinds if self.tasks else ():
            if not self._fine_tuned_so(kind, args):
                start = self._pretrained(kind)
                planned = [
                    (plan(start, task, number, self.out, args.epochs, args), task)
                    for task in self.tasks
                    for number in self.seeds
                ]
                fine_tune_all(planned, args)
                if tabulate and kind != kinds[-1]:
                    self.tabulate(kinds)
        if tabulate:
            self.tabulate(kinds)

    def _fine_tuned_so(self, kind: str, args: argparse.Namespace) -> bool:
        """Whether a kind has its scores by these settings; no checkpoint is read to know it."""
        start = read_json(self._pretrained(kind) / "scores.json")["model"]
        numbers = devices.precision(args)
        row = self.arch.removeprefix(f"{ROBERTA.name}_")
        for task in self.tasks:
            recipe = finetuning(row, task.task.name, args.epochs)
            wanted = Training(recipe.options(task.training)).with_precision(numbers)
            for folder in self._runs(kind, task):
                if not scored(folder, task):
                    return False
                settings = read_job(folder).settings
                options = settings["options"].items()
                if start != settings["start"] or not wanted.options.items() <= options:
                    return False
        return True

    def finished(self, kind: str) -> bool:
        """Whether all runs of a kind have their scores.

        Raises:
            UserError: they were trained on other text or examples.
        """
        start = self._pretrained(kind)
        for folder in [start] if self.tasks else self._all_pretrained(kind):
            if nats_in(folder) is not None:
                check_made_of(folder, self.data.fingerprint, self.data.folder)
            elif not self.tasks:
                return False
        return all(scored(run, task) for task in self.tasks for run in self._runs(kind, task))

    def tabulate(self, kinds: Sequence[str]) -> None:
        """Write the table of those that are finished.

        Raises:
            UserError: none is.
        """
        finished = [kind for kind in kinds if self.finished(kind)]
        if not finished:
            raise UserError(f"no model of {self.out} is finished yet: there is nothing to tabulate")
        left = [kind for kind in kinds if kind not in finished]
        notes = self._notes(finished)
        if left:
            notes.append(f"Not finished, and left out: {'; '.join(left)}.")
        words = len(model_dictionary(self.data.dictionary(), masked=bool(self.tasks)))
        built = {kind: build_language_on_meta(self.arch, kind, words) for kind in finished}
        counts = {kind: attention_parameters(made) for kind, made in built.items()}
        if not self.tasks:
            found = {kind: self._nats(kind) for kind in finished}
            cache = {kind: cache_bytes(made).per_target_token for kind, made in built.items()}
            plot_perplexity(found, (counts, cache), self.path.with_suffix(".png"), self._title())
            self._write([perplexity_block(found, counts, cache)], found, notes)
            return
        for task in self.tasks:
            every = [run for kind in finished for run in self._runs(kind, task)]
            # Seeds of one model must be of one precision; of models the notes tell it.
            own = ("seed", "start", "attention", "precision", *PLACES.values())
            check_alike(every, but=own)
        scores = {kind: self._scores(kind) for kind in finished}
        losses = {kind: nats_in(self._pretrained(kind)) for kind in finished}
        plot_tasks(scores, self.path.with_suffix(".png"), self._title())
        self._write(task_blocks(scores, counts, losses, self._commonest), scores, notes)

    @functools.cached_property
    def _commonest(self) -> dict[str, float | None]:
        """Task -> what the commonest label scores, once for the tables after each kind."""
        return {task.task.name: commonest_score(task) for task in self.tasks}

    def _title(self) -> str:
        """The picture's heading."""
        seeds = ", ".join(map(str, self.seeds))
        word = "seeds" if len(self.seeds) > 1 else "seed"
        return f"{self.arch}, text of {self.data.folder.resolve().name}; {word} {seeds}"

    def _write(
        self, blocks: Sequence[Block], values: Mapping[str, Any], notes: Sequence[str]
    ) -> None:
        """The table and, beside it, the scores of every seed."""
        Table(self.arch, blocks, notes).write(self.path, values)

    def _notes(self, kinds: Sequence[str]) -> list[str]:
        """What the numbers are, and how the models were trained."""
        spread = f"±: the standard deviation over seeds {', '.join(map(str, self.seeds))}, of the "
        several = len(self.seeds) > 1
        pretrained = [self._pretrained(kind) for kind in kinds]
        notes = [f"{spread}training." if several else "One training each."]
        if self.tasks:
            told = f"{spread}fine-tuning alone" if several else "one fine-tuning each"
            notes = [
                "A task's score: the mean of its metrics after the last update, on the set that "
                f"GLUE, SuperGLUE and SQuAD call dev; {told}.",
                "The commonest label: of the training examples; of SQuAD 2.0, no answer.",
                "Pre-training, nats: of what the model is asked for, on the validation text, one "
                "training each.",
                self._fine_tuned(kinds),
            ]
        else:
            pretrained = [folder for kind in kinds for folder in self._all_pretrained(kind)]
        return [*notes, *pretraining_notes(pretrained)]

    def _fine_tuned(self, kinds: Sequence[str]) -> str:
        """In what precision the runs were, and of which kinds where they differ."""
        told = []
        for kind in kinds:
            runs = [run for task in self.tasks for run in self._runs(kind, task)]
            found = dict.fromkeys(read_job(run).training.precision for run in runs)
            told.append((f"in {' and '.join(found)}", kind))
        return f"Fine-tuning: {'; '.join(each_once(told))}."

    def _pretrained(self, kind: str, number: int = 1) -> Path:
        return pretrained(self.arch, kind, number, self.out)

    def _all_pretrained(self, kind: str) -> list[Path]:
        return [self._pretrained(kind, number) for number in self.seeds]

    def _nats(self, kind: str) -> list[float]:
        folders = self._all_pretrained(kind)
        check_alike(folders)
        return [each for each in map(nats_in, folders) if each is not None]

    def _scores(self, kind: str) -> dict[str, list[float]]:
        """Task -> scores of the seeds."""
        return {task.task.name: seed_scores(self._runs(kind, task)) for task in self.tasks}

    def _runs(self, kind: str, task: TaskFolder) -> list[Path]:
        start = self._pretrained(kind)
        return [self.out / run_name(start, task, number) for number in self.seeds]


def each_once(told: Iterable[tuple[str, str]]) -> list[str]:
    """The texts of pairs (text, name), each once; where they differ, with its names behind it."""
    names: dict[str, list[str]] = {}
    for text, name in told:
        names.setdefault(text, []).append(name)
    if len(names) == 1:
        return list(names)
    return [f"{text} ({', '.join(of)})" for text, of in names.items()]


def pretraining_notes(folders: Iterable[Path]) -> list[str]:
    """How the runs of such folders were pre-trained, and with what, in words."""
    made, used = [], []
    for run in map(read_job, folders):
        training = run.training
        how = (
            f"Pre-training: {training.updates:,} updates of {training.batch_tokens:,} blocks of "
            f"{training.options['tokens_per_sample']:,} subwords, in {training.precision}"
        )
        made.append((how, run.name))
        used.append(", ".join(f"{name} {of}" for name, of in run.config["versions"].items()))
    return [f"{line}." for line in (*each_once(made), *dict.fromkeys(used)) if line]

"""``nlu-table``: train, score and tabulate language models: kinds x tasks x seeds."""

import itertools
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.arguments import add_options, from_options, positive, seeds
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, read_json
from fairseq_mhe.common.tables import listed
from fairseq_mhe.experiments.language import (
    ARCH_HELP,
    TASK_SCRIPTS,
    add_arguments,
    add_data,
    pretraining,
)
from fairseq_mhe.experiments.table import grid_fields, kinds
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters, cache_bytes
from fairseq_mhe.models.families import LANGUAGE_ARCHS, ROBERTA
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.report.language_table import (
    notes_on_tasks,
    perplexity_block,
    task_blocks,
)
from fairseq_mhe.report.plots import plot_perplexity, plot_tasks
from fairseq_mhe.report.results import precisions
from fairseq_mhe.report.table import Table, seed_words
from fairseq_mhe.runs.finetuning import FinetuningRecipe, plan_finetuning
from fairseq_mhe.runs.grid import Grid
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.pool import run_grid
from fairseq_mhe.runs.recipe_options import LanguageRecipe
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.slurm import SlurmJob, SlurmOptions
from fairseq_mhe.runs.task_scores import commonest_score

#: The kinds in the paper's table, in its order.
_KINDS = "sha,mha,el,mqa,skv,mhe_add,mhe_mul"


def nlu_table_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("arch", metavar="ARCH", nargs="?", help=ARCH_HELP)
    help_ = f"task folders of {TASK_SCRIPTS} (masked models only)"
    add("--tasks", type=Path, nargs="+", default=[], metavar="TASK-DATA", help=help_)
    help_ = "kinds of attention, or all (default: %(default)s)"
    add("--kinds", type=kinds, default=_KINDS, metavar="KIND,...", help=help_)
    help_ = "seeds of fine-tuning, or of a causal model's training (default: %(default)s)"
    add("--seeds", type=seeds, default="1,2,3", metavar="N,...", help=help_)
    add_data(parser)
    add_options(parser, LanguageRecipe)
    help_ = "epochs of fine-tuning (default: the task's)"
    add("--epochs", type=positive, metavar="N", help=help_)
    add_arguments(parser)
    add_options(parser.add_argument_group("SLURM"), SlurmOptions)


def nlu_table(args: Namespace) -> None:
    """Train and score the unfinished models and print the table, or submit them to SLURM."""
    data = open_data(args.data, TEXT)
    tasks = [open_task(folder) for folder in args.tasks]
    recipe = from_options(LanguageRecipe, args).read(args.arch)
    _check_tasks(recipe, data, tasks, args.epochs)
    grid = LanguageGrid(
        **grid_fields(args),
        recipe=recipe,
        data=data,
        tasks=tasks,
        kinds=args.kinds,
        seeds=args.seeds,
        finetuning=FinetuningRecipe(epochs=args.epochs),
    )
    run_grid(grid)


def _check_tasks(
    recipe: Recipe, data: DataFolder, tasks: Sequence[TaskFolder], epochs: int | None
) -> None:
    """Raise UserError if the model is not fine-tuned, or tasks do not fit it or each other."""
    arch = recipe.training.options["arch"]
    masked = LANGUAGE_ARCHS.get(arch) is ROBERTA
    if masked and not tasks:
        raise UserError(f"{arch} is fine-tuned on tasks: name them with --tasks")
    if not masked and (tasks or epochs):
        raise UserError(f"{arch} is not fine-tuned: leave --tasks and --epochs out")
    if len({task.task.name for task in tasks}) < len(tasks):
        raise UserError("--tasks has two folders of one task: leave one out")
    for task in tasks:
        if task.manifest["text"] != data.fingerprint:
            raise UserError(
                f"{task.folder} is not in the subwords of {data.folder}: prepare it with --text "
                f"{data.folder}"
            )


@dataclass(frozen=True, kw_only=True)
class LanguageGrid(Grid):
    """The jobs and the table of one architecture; a causal model has no ``tasks``."""

    recipe: Recipe
    data: DataFolder
    tasks: Sequence[TaskFolder]
    kinds: Sequence[str]
    seeds: Sequence[int]  # of fine-tuning, or of a causal model's training
    finetuning: FinetuningRecipe

    @property
    def total(self) -> int:
        per_kind = len(self._seeds_of_pretraining) + len(self.tasks) * len(self.seeds)
        return len(self.kinds) * per_kind

    @property
    def _seeds_of_pretraining(self) -> Sequence[int]:
        return [1] if self.tasks else self.seeds

    def plan(self) -> list[Job]:
        """Plan all pre-trainings, and the fine-tunings of the models that are pre-trained."""
        pretrainings = []
        for kind, seed in itertools.product(self.kinds, self._seeds_of_pretraining):
            job = pretraining(self.recipe, kind, seed, self.data, self.out, self.devices)
            pretrainings.append(job)
        models = [job.folder for job in pretrainings if self.finished(job)]
        finetunings = []
        for model, task, seed in itertools.product(models, self.tasks, self.seeds):
            job = plan_finetuning(
                model, task, seed, self.out, self.finetuning, self.devices
            )
            finetunings.append(job)
        return [*pretrainings, *finetunings]

    def finished_kinds(self) -> dict[str, list[Job]]:
        """Return the jobs of each kind of which all jobs have scores."""
        finished, _ = self.split()
        of_kinds = {}
        for kind in self.kinds:
            jobs = [job for job in finished if job.kind == kind]
            if len(jobs) == self.total // len(self.kinds):
                of_kinds[kind] = jobs
        return of_kinds

    def slurm_jobs(self) -> list[SlurmJob]:
        """Return one SLURM job for each kind: it trains all models of the kind."""
        finished = self.finished_kinds()
        jobs = []
        for kind in self.kinds:
            jobs.append(self.slurm_job(kind, ["--kinds", kind], kind in finished))
        return jobs

    def tabulate(self) -> bool:
        """Write the table, JSON and picture of the finished kinds, and print the table."""
        finished = self.finished_kinds()
        if not finished:
            return False
        rows = [self._values(kind, jobs) for kind, jobs in finished.items()]
        notes = self._notes([job for jobs in finished.values() for job in jobs])
        if unfinished := [kind for kind in self.kinds if kind not in finished]:
            notes.append(f"Not finished, and left out: {'; '.join(unfinished)}.")
        path = self.out / ("nlu-table.md" if self.tasks else "perplexity.md")
        title = f"{self.recipe.row}, text of {self.data.folder.name}; {self._seed_words}"
        if self.tasks:
            commonest = {}
            for task in self.tasks:
                commonest[task.task.name] = commonest_score(task)
            blocks = task_blocks(rows, commonest)
            notes = [*notes_on_tasks(blocks, commonest), *notes]
            plot_tasks(rows, path.with_suffix(".png"), title, commonest)
        else:
            blocks = [perplexity_block(rows)]
            plot_perplexity(rows, path.with_suffix(".png"), title)
        values = {row["attention"]: row.get("scores", row["nats"]) for row in rows}
        table = Table(self.recipe.row, blocks, notes)
        table.write(path, values)
        print(f"{table.markdown()}{path}")
        return True

    def _values(self, kind: str, jobs: Sequence[Job]) -> Json:
        """Return the values of a kind for `task_blocks`, or for `perplexity_block`."""
        options = {**self.recipe.training.options}
        model = build_on_meta(options.pop("arch"), kind, **options)
        row = {"attention": kind, "attention_parameters": attention_parameters(model)}
        nats: list[float] = []
        scores: dict[str, list[float]] = defaultdict(list)
        for job in jobs:
            results = read_json(job.scores)
            if "task" in results:
                scores[results["task"]].append(results["scores"]["score"])
            else:
                nats.append(results["nats"])
        if self.tasks:
            return {**row, "scores": scores, "nats": nats[0]}
        cache = cache_bytes(model).per_target_token
        return {**row, "nats": nats, "kv_bytes_per_token": cache}

    def _notes(self, jobs: Sequence[Job]) -> list[str]:
        """Return notes on the numbers and on the training of the jobs in the table.

        All follow one recipe, but on different machines its precision may differ.
        """
        pretrained = [job for job in jobs if "task" not in job.settings]
        tuned = [job for job in jobs if "task" in job.settings]
        training = jobs[0].training
        subwords = training.options["tokens_per_sample"]
        batches = f"{training.batch} (blocks of {subwords:,} subwords)"
        precision = precisions(pretrained)
        pretraining = f"{training.updates:,} updates of {batches}, in {precision}"
        versions = [listed(job.config["versions"]) for job in [*pretrained, *tuned]]
        different_versions = " or ".join(dict.fromkeys(versions))
        if not self.tasks:
            return [
                f"Training: {self._seed_words}, {pretraining}.",
                f"{different_versions}.",
            ]
        return [
            f"Pre-training: {pretraining}; nats: validation loss per masked subword.",
            f"Fine-tuning: {self._seed_words}, in {precisions(tuned)}.",
            f"{different_versions}.",
        ]

    @property
    def _seed_words(self) -> str:
        several = " (±: standard deviation)" if len(self.seeds) > 1 else ""
        return f"{seed_words(self.seeds)}{several}"

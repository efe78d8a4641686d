"""Grids of translation models: rows x kinds x seeds, and what they share with studies."""

import itertools
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import from_options, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, output_folder, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.samples import write_samples
from fairseq_mhe.report.table import Table
from fairseq_mhe.report.translation_table import FILES, write_table
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.grid import Grid
from fairseq_mhe.runs.job import Job, plan_job, settings_of, with_precision
from fairseq_mhe.runs.recipes import Recipe, read_recipe
from fairseq_mhe.runs.slurm import SlurmJob, SlurmOptions
from fairseq_mhe.runs.training import Training
from fairseq_mhe.runs.translation import ScoringOptions

#: Converter of an option: kinds of attention, separated by commas, or "all".
kinds = some_of(KINDS)


def grid_fields(args: Namespace) -> Json:
    """Return the fields of a grid that all commands set alike.

    SLURM jobs start later: they get a copy of a user's recipe, which may change until then.
    """
    out = output_folder(args.out)
    words = ["fairseq-mhe", *args.typed]
    has_slurm = "slurm" in args  # not train, the quickstarts, pretrain and finetune
    slurm = from_options(SlurmOptions, args) if has_slurm else SlurmOptions()
    if slurm.submits and args.recipe:
        recipe = read_recipe(args.recipe, args.overrides)
        path = out / "slurm" / f"{recipe.row}.yaml"
        write_text(path, recipe.composed)
        words += ["--recipe", str(path)]
    devices = from_options(DeviceOptions, args)
    return {"out": out, "devices": devices, "command": shlex.join(words), "slurm": slurm}


def translation_fields(args: Namespace, data: Path) -> Json:
    """Return the fields of a `TranslationGrid`."""
    scoring = from_options(ScoringOptions, args)
    return {**grid_fields(args), "data": open_data(data), "scoring": scoring}


def run_name(recipe: Recipe, name: str, seed: int) -> str:
    """Return the name of the run folder of a kind or variant."""
    return f"{recipe.row}-{name}-seed{seed}"


@dataclass(frozen=True, kw_only=True)
class TranslationGrid(Grid):
    """A grid of translation models, all of the same data."""

    data: DataFolder

    def job(
        self,
        recipe: Recipe,
        name: str,
        attention: Mapping[str, str],
        seed: int,
        start: Mapping[str, str] = {},
        precision: str | None = None,
    ) -> Job:
        """Plan the job in the folder ROW-NAME-seedN; UserError if it holds other settings.

        ``attention``: place -> kind; ``start``: path and SHA-256 of a checkpoint to start from;
        ``precision``: in place of the command's.
        """
        folder = self.out / run_name(recipe, name, seed)
        devices = replace(self.devices, precision=precision or self.devices.precision)
        training = with_precision(recipe.training, folder, devices)
        settings = settings_of(recipe.row, attention, seed, training, self.data.identity)
        input_paths = {"data": str(self.data.folder)}
        if start:
            settings["start"] = start["sha256"]
            input_paths["start"] = start["path"]
        job = plan_job(folder, settings, input_paths, recipe.decoding)
        if not job.metrics.exists():
            self._check_longest(training)
        return job

    @cached_property
    def _longest(self) -> int:
        return max(self.data.longest("train"))

    def _check_longest(self, training: Training) -> None:
        """Raise UserError if a sentence of train does not fit in a mini-batch."""
        longest = self._longest
        most = training.shared_by(self.devices.workers).get("max_tokens", longest)
        if training.updates and longest > most:
            raise UserError(
                f"a sentence of {self.data.folder} has {longest} tokens, which do not fit in a "
                f"mini-batch of {most}: give --max-tokens {longest} or more, on fewer devices"
            )

    def say_batches(self, recipes: Sequence[Recipe]) -> None:
        """Print each row's updates and batch; UserError if devices cannot share a batch."""
        workers = self.devices.workers
        for recipe in recipes:
            training = recipe.training
            shared = training.changed(**training.shared_by(workers))
            (update_freq,) = shared.options["update_freq"]
            sizes = f"{shared.mini_batch:,} x {workers} x update-freq {update_freq}"
            batch = f"{training.batch_tokens:,} = {sizes}"
            say(f"  {recipe.row}: {training.updates:,} updates, batches of {batch}")


@dataclass(frozen=True, kw_only=True)
class Cells(TranslationGrid):
    """Rows x kinds x seeds."""

    recipes: Sequence[Recipe]
    kinds: Sequence[str]
    seeds: Sequence[int]
    title: str = ""

    def plan(self) -> list[Job]:
        jobs = []
        for recipe, kind, seed in itertools.product(self.recipes, self.kinds, self.seeds):
            jobs.append(self.job(recipe, kind, dict.fromkeys(PLACES, kind), seed))
        return jobs

    def after(self, job: Job) -> None:
        if not self.slurm.no_table:
            self.write()

    def slurm_jobs(self) -> list[SlurmJob]:
        jobs = []
        for job in self.plan():
            cell = ["--kinds", job.kind, "--seeds", str(job.seed)]
            if "--recipe" not in shlex.split(self.command):
                cell += ["--rows", job.row]
            jobs.append(self.slurm_job(job.name, cell, self.finished(job)))
        return jobs

    def write(self) -> tuple[Table, str] | None:
        """Write table and samples.md of the finished jobs, and return both; None without jobs."""
        finished, waiting = self.split()
        if not finished:
            return None
        cells = gather([job.folder for job in finished], self.scoring.subset)
        unfinished = [job.name for job in waiting]
        table = write_table(cells, self.out, self.title, unfinished)
        return table, write_samples(cells, self.out)

    def tabulate(self) -> bool:
        written = self.write()
        if written:
            table, samples = written
            self.show(table)
            print(f"\n{samples}", end="")
            say(", ".join(str(self.out / name) for name in (*FILES, "samples.md")))
        return bool(written)

    def show(self, table: Table) -> None:
        """Print the table."""
        print(table.markdown(), end="")

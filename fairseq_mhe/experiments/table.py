"""``train``, and what it shares with ``run-table``: the jobs of translation models, their table."""

import itertools
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_options, add_seed, from_options, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments.evaluate import ScoringOptions, print_scores
from fairseq_mhe.experiments.grid import Grid, check_any_finished, raise_failures
from fairseq_mhe.experiments.recipe import add_overrides
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.samples import write_samples
from fairseq_mhe.report.table import Table
from fairseq_mhe.report.translation_table import write_table
from fairseq_mhe.runs import translation
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.job import Job, plan_job, settings_of, with_precision
from fairseq_mhe.runs.recipe_options import TranslationRecipe
from fairseq_mhe.runs.recipes import NAMES, Recipe

#: Converter of an option: kinds of attention, separated by commas, or "all".
kinds = some_of(KINDS)


@dataclass(frozen=True)
class Trainings:
    """What the translation jobs of a command share: data, folder, scoring, devices."""

    data: DataFolder
    out: Path
    scoring: ScoringOptions
    devices: DeviceOptions
    command: str  # what the user typed

    def job(
        self,
        recipe: Recipe,
        name: str,
        attention: Mapping[str, str],
        seed: int,
        start: Mapping[str, str] = {},
    ) -> Job:
        """Plan the job in the folder ROW-NAME-seedN; UserError if it holds other settings.

        ``attention``: place -> kind; ``start``: path and SHA-256 of a checkpoint to start from.
        """
        folder = self.out / f"{recipe.row}-{name}-seed{seed}"
        training = with_precision(recipe.training, folder, self.devices)
        settings = settings_of(recipe.row, attention, seed, training, self.data.identity)
        input_paths = {"data": str(self.data.folder)}
        if start:
            settings["start"] = start["sha256"]
            input_paths["start"] = start["path"]
        job = plan_job(folder, settings, input_paths, recipe.decoding)
        if not job.metrics.exists():
            self._check_longest(training.shared_by(self._workers), training.updates)
        return job

    @property
    def _workers(self) -> int:
        return self.devices.gpus or self.devices.processes or 1

    def _check_longest(self, sizes: Mapping[str, object], updates: int) -> None:
        """Raise UserError if a sentence of train does not fit in a mini-batch."""
        most = sizes.get("max_tokens")
        longest = max(self.data.longest("train"))
        if updates and isinstance(most, int) and longest > most:
            raise UserError(
                f"a sentence of {self.data.folder} has {longest} tokens, which do not fit in a "
                f"mini-batch of {most}: give --max-tokens {longest} or more, on fewer devices"
            )

    def cells(
        self, recipes: Sequence[Recipe], kinds_: Sequence[str], seeds_: Sequence[int]
    ) -> list[Job]:
        """Plan a job for each recipe, kind and seed."""
        jobs = []
        for recipe, kind, seed in itertools.product(recipes, kinds_, seeds_):
            jobs.append(self.job(recipe, kind, dict.fromkeys(PLACES, kind), seed))
        return jobs

    def grid(self, jobs: Sequence[Job]) -> Grid:
        """Return the grid that trains, translates and scores these jobs."""
        scored = self.scoring.scored
        own = (self.devices, self.command)
        return Grid(self.out, len(jobs), lambda: jobs, scored, self.scoring_words, *own)

    def scoring_words(self, job: Job) -> list[str]:
        """Return the command that translates and scores a trained job."""
        words = ["evaluate", str(job.folder), "--data", str(self.data.folder)]
        words += ["--subset", self.scoring.subset]
        if self.scoring.bleu_tokenizer:
            words += ["--bleu-tokenizer", self.scoring.bleu_tokenizer]
        if self.devices.cpu or self.devices.processes:
            words.append("--cpu")
        return words

    def say_batches(self, recipes: Sequence[Recipe]) -> None:
        """Print each row's updates and batch; UserError if devices cannot share a batch."""
        for recipe in recipes:
            training = recipe.training
            size, (update_freq,) = training.shared_by(self._workers).values()
            sizes = f"{size:,} x {self._workers} x update-freq {update_freq}"
            batch = f"{training.batch_tokens:,} = {sizes}"
            say(f"  {recipe.row}: {training.updates:,} updates, batches of {batch}")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options that ``train`` and ``run-table`` share."""
    add = parser.add_argument
    help_ = "folder for the run folders"
    add("--out", type=Path, required=True, metavar="RUNS", help=help_)
    for options in (TranslationRecipe, ScoringOptions, DeviceOptions):
        add_options(parser, options)
    add_overrides(parser)


def recipe_options(args: Namespace) -> TranslationRecipe:
    """Return the options that change a recipe."""
    options: TranslationRecipe = from_options(TranslationRecipe, args)
    return replace(options, overrides=args.overrides)


def open_trainings(args: Namespace, data: Path) -> Trainings:
    """Open the data and the output folder of a command."""
    return Trainings(
        open_data(data),
        output_folder(args.out),
        from_options(ScoringOptions, args),
        from_options(DeviceOptions, args),
        shlex.join(["fairseq-mhe", *args.typed]),
    )


def train_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = f"size of the model: {', '.join(NAMES)}; leave it out with --recipe"
    add("row", metavar="ROW", nargs="?", help=help_)
    help_ = f"kind of attention: {', '.join(KINDS)}"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add_seed(parser)
    help_ = "translate and score the model afterwards"
    add("--evaluate", action="store_true", help=help_)
    add("--data", type=Path, required=True, metavar="DATA", help="prepared data folder")
    add_arguments(parser)


def train(args: Namespace) -> None:
    """Train or resume one model, score it with --evaluate, and print its run folder."""
    trainings = open_trainings(args, args.data)
    if not args.evaluate and trainings.scoring != ScoringOptions():
        options = "--subset and --bleu-tokenizer"
        raise UserError(f"{options} apply to scoring: add --evaluate, or leave them out")
    recipe = recipe_options(args).read(args.row, NAMES)
    (job,) = trainings.cells([recipe], [args.attention], [args.seed])
    trainings.say_batches([recipe])
    grid = trainings.grid([job])
    if args.evaluate:
        trainings.scoring.check(trainings.data)
    else:
        grid = replace(grid, finished=lambda job: job.metrics.exists())
    raise_failures(grid.train(), 1)
    if args.evaluate:
        print_scores(job, trainings.scoring.subset)
    else:
        translation.make_model(job)
    print(job.folder)


def copied_recipes(recipes: Sequence[Recipe], out: Path) -> list[str]:
    """Copy a user's recipe for jobs that start later; return the option that names the copy."""
    (recipe,) = recipes
    path = out / "slurm" / f"{recipe.row}.yaml"
    write_text(path, recipe.composed)
    return ["--recipe", str(path)]


def tabulate(
    grid: Grid, trainings: Trainings, title: str, paper: bool = True
) -> tuple[Table, str]:
    """Write table and samples.md of the finished jobs, and return the table and the samples.

    Raises UserError if no job is finished.
    """
    finished, waiting = grid.split()
    check_any_finished(finished, grid.out)
    cells = gather([job.folder for job in finished], trainings.scoring.subset)
    unfinished = [job.name for job in waiting]
    table = write_table(cells, grid.out, title, paper, unfinished)
    return table, write_samples(cells, grid.out)

"""A study: variants of a row's model, each trained with several seeds and compared with another."""

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    atomic_path,
    only_one,
    output_folder,
    read_json,
    sha256,
    write_json,
)
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.convert.compare import open_material
from fairseq_mhe.experiments import table
from fairseq_mhe.experiments.evaluate import check_subset, evaluate
from fairseq_mhe.experiments.table import TableRun
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.runs import devices, translation
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.recipes import Recipe, Training
from fairseq_mhe.runs.resuming import LAST
from studies.report import REFERENCE, report

MHA, MHE = "mha", "mhe_mul"


@dataclass(frozen=True)
class Start:
    """Weights to begin with, which ``convert`` makes of the trained mha of the same seed.

    ``convert(output, material)`` writes a checkpoint and returns its report as JSON values;
    ``settings``: all that decides the result, as JSON values; ``sentences``: pairs that it is
    fitted to, and as many that it is judged on.
    """

    settings: Mapping[str, Any]
    convert: Callable[[Path, Any], Any]

    def make(self, output: Path, model: Path, data: Path) -> None:
        """Convert a model on sentences of a data folder, once, with conversion.json beside it.

        Raises:
            UserError: the start that is there was made of another model or by other options.
        """
        path = output.with_name("conversion.json")
        made_of = {**self.settings, "model": sha256(model)}
        if path.exists():
            if read_json(path)["made_of"] != made_of:
                raise UserError(
                    f"{output.parent} was converted from another model or by other options: choose "
                    "another --out"
                )
            return
        say(f"converting {model} to {output.parent.name}")
        output.parent.mkdir(parents=True, exist_ok=True)
        with quiet_fairseq():
            material = open_material(open_source(model), data, self.settings["sentences"])
            conversion = self.convert(output, material)
        write_json(path, {"made_of": made_of, "sha256": sha256(output), "report": conversion})


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to build and train the row's model; all else is as the row's recipe has it.

    ``question``: the heading of the report that it stands below; ``attention``: the kind at each
    place; ``reference``: the name of the variant that it is compared with, its own of a reference;
    ``options``: further options of fairseq-train, by name; ``updates``: the share of the recipe's
    updates, 0 of a model that is not trained at all; ``start``: where it does not begin at random;
    ``x``: its place on the axis of a study that draws its questions as curves.
    """

    name: str
    question: str
    attention: Mapping[str, str]
    reference: str
    options: Mapping[str, Any] = field(default_factory=dict)
    updates: float = 1.0
    start: Start | None = None
    x: int | None = None


@dataclass(frozen=True)
class Study:
    """What is asked: ``questions``: headings of the report and what they mean.

    ``variants``: of the command's options and the row's recipe, the references first;
    ``add_own``: adds its own options.
    """

    name: str
    title: str
    questions: Mapping[str, str]
    variants: Callable[[argparse.Namespace, Recipe], Sequence[Variant]]
    add_own: Callable[[argparse.ArgumentParser], None] = lambda _: None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Its own options, and those of every study of variants."""
        self.add_own(parser)
        add = parser.add_argument
        add("--row", default="tiny", help="size of the models (default: %(default)s)")
        add("--only", metavar="NAME,...", help="variants or questions beside the references")
        seeds = "random seeds (default: %(default)s)"
        add("--seeds", type=table.seeds, default="1,2,3", metavar="N,...", help=seeds)
        add(
            "--finished-only",
            action="store_true",
            help="train nothing: report what is finished",
        )
        table.add_arguments(parser)

    def ordered(self, args: argparse.Namespace, recipe: Recipe) -> list[Variant]:
        """The variants by question."""
        order = list(self.questions)
        return sorted(self.variants(args, recipe), key=lambda each: order.index(each.question))

    def run(self, args: argparse.Namespace) -> None:
        """Train, translate and score what is not done, and report."""
        recipe = table.chosen_recipe(args.row, args)
        variants = chosen(self.ordered(args, recipe), args.only)
        data = open_data(args.data)
        check_subset(data, args.subset)
        work = _Work(args, recipe, data, output_folder(args.out))
        with only_one(work.out):  # the run folders have locks of their own
            if not args.finished_only:
                work.train([each for each in variants if not each.start])
                converted = [each for each in variants if each.start]
                for variant in converted:
                    work.convert(variant)
                work.train([each for each in converted if each.updates])
            done = work.scored(variants)
            if any(each.question == REFERENCE and each not in done for each in variants):
                raise UserError(
                    f"{work.out}: the references are not finished: nothing to compare"
                )
            report(self, recipe, variants, done, args)


def everywhere(kind: str) -> dict[str, str]:
    """One kind of attention at all places."""
    return dict.fromkeys(PLACES, kind)


def add_sentences(parser: argparse.ArgumentParser) -> None:
    """The option of studies that convert models."""
    words = "pairs that a conversion is fitted to and judged on (default: %(default)s)"
    parser.add_argument("--sentences", type=positive, default=1000, metavar="N", help=words)


def chosen(variants: Sequence[Variant], names: str | None) -> list[Variant]:
    """The references, and what ``names`` ask for: variants or questions, with commas between.

    Raises:
        UserError: there is none of such a name.
    """
    known = dict.fromkeys(
        [each.question for each in variants] + [each.name for each in variants]
    )
    words = set(known if names is None else names.split(","))
    if unknown := sorted(words - known.keys()):
        raise UserError(f"--only {unknown[0]}: unknown; choose of {', '.join(known)}")
    words.add(REFERENCE)
    return [each for each in variants if words & {each.name, each.question}]


def training_of(recipe: Training, variant: Variant) -> Training:
    """How a variant is trained.

    A share of the updates has two checkpoints more than are averaged, and no patience: the warm-up
    would stay as long, and never end.
    """
    training = recipe.changed(**variant.options)
    if not variant.updates:
        return training.changed(patience=None, max_update=0)
    if variant.updates == 1:
        return training
    updates, average = max(1, round(variant.updates * training.updates)), training.average
    interval = max(1, updates // max(1, min(updates, average + 2)))
    shortened = training.changed(patience=None, keep_last_epochs=None).shortened(updates)
    return shortened.changed(
        save_interval=10**6,
        validate_interval=10**6,
        no_epoch_checkpoints=True,
        save_interval_updates=interval,
        validate_interval_updates=interval,
        keep_interval_updates=average + 1,
    )


@dataclass(frozen=True)
class _Work:
    """The jobs of a study in its folder ``out``, one for each variant and seed."""

    args: argparse.Namespace
    recipe: Recipe
    data: DataFolder
    out: Path

    def _start(self, variant: Variant, seed: int) -> Path:
        return self.out / f"start-{variant.name}-seed{seed}" / "start.pt"

    def _jobs(self, variant: Variant) -> list[Job]:
        """One for each seed; none of a variant that waits for its conversions.

        Those of plain kinds are run-table's.
        """
        jobs = []
        for seed in sorted(self.args.seeds):
            how = (training_of(self.recipe.training, variant), self.data.identity)
            settings = settings_of(self.recipe.row, variant.attention, seed, *how)
            places = {"data": str(self.data.folder)}
            if variant.start:
                start = self._start(variant, seed)
                conversion = start.with_name("conversion.json")
                if not conversion.exists():
                    return []
                settings["start"] = read_json(conversion)["sha256"]
                places["start"] = str(start.resolve())
            name = f"{self.recipe.row}-{variant.name}-seed{seed}"
            jobs.append(plan_job(self.out / name, settings, places, self.recipe.decoding))
        return jobs

    def _scored(self, job: Job) -> bool:
        return translation.scored(job, self.args.subset)

    def scored(self, variants: Sequence[Variant]) -> dict[Variant, list[Job]]:
        """The jobs of the variants that are finished."""
        jobs = {variant: self._jobs(variant) for variant in variants}
        return {
            each: jobs[each]
            for each in variants
            if jobs[each] and all(map(self._scored, jobs[each]))
        }

    def train(self, variants: Sequence[Variant]) -> None:
        """Train, translate and score what is not done."""
        jobs = [job for variant in variants for job in self._jobs(variant)]
        waiting = [job for job in jobs if not self._scored(job)]
        if not waiting:
            return
        say(f"{len(waiting)} of {len(jobs)} models to train")

        def tidy() -> None:
            """Remove the checkpoints of scored runs but the last: many runs would fill a disk."""
            for job in filter(self._scored, waiting):
                for path in job.checkpoints.glob("checkpoint*.pt"):
                    if path.name != LAST:
                        path.unlink()

        runs = TableRun(jobs, self.data, self.out, self.args.subset)
        runs.work(devices.asked_for(self.args, len(waiting)), after=tidy)

    def convert(self, variant: Variant) -> None:
        """Make the starts of a variant; one that is not trained is counted, translated, scored."""
        for seed in self.args.seeds:
            model = self.out / f"{self.recipe.row}-{MHA}-seed{seed}" / "model.pt"
            if variant.start:
                variant.start.make(self._start(variant, seed), model, self.data.folder)
        for job in () if variant.updates else self._jobs(variant):
            if not self._scored(job):
                with only_one(job.folder):
                    job.keep()
                    with atomic_path(job.model) as temporary:
                        shutil.copyfile(job.place("start"), temporary)
                    translation.count(job)
                    evaluate(job, self.data, self.args.subset, devices.single(self.args.cpu))

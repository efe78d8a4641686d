"""Run a study: train variants with several seeds, score them, and compare them in a report."""

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common import files
from fairseq_mhe.common.arguments import seeds
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.convert.change_kind import convert
from fairseq_mhe.convert.compare import open_material
from fairseq_mhe.experiments import table
from fairseq_mhe.experiments.table import TableRun, check_subset, evaluate_job
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.report.results import Cell, read_result
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.training import Training
from studies.report import report
from studies.variants import MHA, REFERENCE, Study, Variant, add_options


def add_arguments(study: Study, parser: ArgumentParser) -> None:
    """Add a study's own options, and the options of all studies of variants."""
    add_options(parser, study.options)
    add = parser.add_argument
    add("--row", default="tiny", help="size of the models (default: %(default)s)")
    add("--only", metavar="NAME,...", help="variants or questions to train (default: all)")
    add("--seeds", type=seeds, default="1,2,3", metavar="N,...", help="seeds (default: 1,2,3)")
    add("--finished-only", action="store_true", help="train nothing; report the finished runs")
    table.add_arguments(parser)
    parser.set_defaults(recipe=None)  # the recipe is that of --row


def run(study: Study, args: Namespace) -> None:
    """Train, translate and score the unfinished variants, and write and print the report."""
    recipe = table.chosen_recipe(args.row, args)
    order = list(study.questions)
    variants = sorted(study.variants(args, recipe), key=lambda v: order.index(v.question))
    variants, data = selected(variants, args.only), open_data(args.data)
    check_subset(data, args)
    jobs = Jobs(args, recipe, data, files.output_folder(args.out))
    with files.lock_folder(jobs.out):  # training also locks each run folder
        if not args.finished_only:
            jobs.train(*(variant for variant in variants if not variant.start))
            converted = [variant for variant in variants if variant.start]
            for variant in converted:
                jobs.convert(variant)
            jobs.train(*(variant for variant in converted if variant.updates))
        cells = {}
        for variant in variants:
            of_variant = jobs.table(variant)
            if of_variant.jobs and not of_variant.waiting():
                results = [read_result(job, args.subset) for job in of_variant.jobs]
                cells[variant] = Cell(recipe.row, variant.name, tuple(results))
        unfinished = [variant for variant in variants if variant not in cells]
        if any(variant.question == REFERENCE for variant in unfinished):
            raise UserError(f"{jobs.out}: references are not finished: leave --finished-only out")
        report(study, recipe, cells, [variant.name for variant in unfinished], args)


def selected(variants: Sequence[Variant], names: str | None) -> list[Variant]:
    """Return the references, and the variants that ``names`` lists by name or by question."""
    known = [*dict.fromkeys(v.question for v in variants), *(v.name for v in variants)]
    words = known if names is None else [REFERENCE, *names.split(",")]
    for word in words:
        if word not in known:
            raise UserError(f"--only {word}: unknown; choose from {', '.join(known)}")
    return [v for v in variants if v.name in words or v.question in words]


def training_of(recipe: Training, variant: Variant) -> Training:
    """Return the recipe's training with the options and the number of updates of a variant."""
    training = recipe.changed(**variant.options)
    if variant.updates == 1:
        return training
    average = training.average
    training = training.changed(patience=None)  # with it `shortened` would keep the whole warm-up
    if not variant.updates:
        return training.changed(max_update=0)
    updates = max(1, round(variant.updates * training.updates))
    interval = max(1, updates // (average + 2))  # to average as many checkpoints as the recipe
    intervals = dict.fromkeys(("save_interval_updates", "validate_interval_updates"), interval)
    never = {"save_interval": 10**6, "validate_interval": 10**6, "no_epoch_checkpoints": True}
    shorter = training.changed(keep_last_epochs=None).shortened(updates)
    return shorter.changed(**intervals, **never, keep_interval_updates=average + 1)


def make_start(start: Mapping[str, Any], output: Path, model: Path, data: Path | None) -> None:
    """Convert the trained mha ``model`` into the checkpoint ``output`` from which training starts.

    ``start``: "to" is the kind; "sentences" pairs of train fit the conversion, and as many of valid
    measure it; the rest are options of `convert`. UserError if ``output`` was converted otherwise.
    """
    record, made_of = output.with_name("conversion.json"), {**start, "model": files.sha256(model)}
    if record.exists():
        if files.read_json(record)["made_of"] != made_of:
            problem = "was converted from another model or by other options"
            raise UserError(f"{output.parent} {problem}: choose another --out")
        return
    say(f"converting {model} to {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    options, fitted = dict(start), {}
    kind, sentences = options.pop("to"), options.pop("sentences")
    if kind == MHA:
        shutil.copyfile(model, output)
    else:
        with quiet_fairseq():
            material = open_material(open_source(model), data, sentences)
            fitted = convert(output, kind, material, **options)
    files.write_json(record, {"made_of": made_of, "sha256": files.sha256(output), "report": fitted})


@dataclass(frozen=True)
class Jobs:
    """The jobs of a study in its folder ``out``, one for each variant and seed."""

    args: Namespace
    recipe: Recipe
    data: DataFolder
    out: Path

    def plan(self, variant: Variant) -> list[Job]:
        """Plan a job for each seed; none if the variant starts from a conversion not yet made."""
        jobs, input_paths = [], {"data": str(self.data.folder)}
        row, training = self.recipe.row, training_of(self.recipe.training, variant)
        for seed in sorted(self.args.seeds):
            settings = settings_of(row, variant.attention, seed, training, self.data.identity)
            if variant.start:
                start = self._start(variant, seed)
                conversion = start.with_name("conversion.json")
                if not conversion.exists():
                    return []
                settings["start"] = files.read_json(conversion)["sha256"]
                input_paths = {**input_paths, "start": str(start.resolve())}
            # A variant named as its kind gets the folder, and so the finished run, of run-table.
            folder = self.out / f"{row}-{variant.name}-seed{seed}"
            jobs.append(plan_job(folder, settings, input_paths, self.recipe.decoding))
        return jobs

    def _start(self, variant: Variant, seed: int) -> Path:
        return self.out / f"start-{variant.name}-seed{seed}" / "start.pt"

    def table(self, *variants: Variant) -> TableRun:
        jobs = [job for variant in variants for job in self.plan(variant)]
        return TableRun(jobs, self.data, self.out, self.args)

    def train(self, *variants: Variant) -> None:
        """Train, translate and score the jobs of the variants that have no scores yet."""
        table_run = self.table(*variants)
        waiting = table_run.waiting()

        def remove_checkpoints() -> None:
            """Remove all but the last checkpoint of scored jobs: many jobs would fill the disk."""
            for job in filter(table_run.scored, waiting):
                for path in set(job.checkpoints.glob("checkpoint*.pt")) - {job.last}:
                    path.unlink()

        table_run.work(after=remove_checkpoints)

    def convert(self, variant: Variant) -> None:
        """Convert mha for a variant; if the variant has no updates, score the result at once."""
        for seed in self.args.seeds:
            model = self.out / f"{self.recipe.row}-{MHA}-seed{seed}" / "model.pt"
            make_start(variant.start or {}, self._start(variant, seed), model, self.data.folder)
        untrained = [] if variant.updates else self.table(variant).waiting()
        for job in untrained:
            with files.lock_folder(job.folder), Board("sentences") as board:
                job.write_config()
                with files.atomic_path(job.model) as temporary:
                    shutil.copyfile(job.input_path("start"), temporary)
                evaluate_job(job, board, self.data, self.args)

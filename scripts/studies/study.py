"""The loop of a study: variants trained with several seeds, scored, and compared in a report."""

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import seeds
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    atomic_path,
    lock_folder,
    output_folder,
    read_json,
    sha256,
    write_json,
)
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.convert.change_kind import convert
from fairseq_mhe.convert.compare import open_material
from fairseq_mhe.experiments import table
from fairseq_mhe.experiments.table import TableRun, check_subset, evaluate_job
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.report.results import Cell, read_result
from fairseq_mhe.runs import translation
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.recipes import Recipe, Training
from studies.report import report
from studies.variants import MHA, REFERENCE, Study, Variant, add_options


def add_arguments(study: Study, parser: ArgumentParser) -> None:
    """A study's own options, and those of every study of variants."""
    add_options(parser, study.options)
    add = parser.add_argument
    add("--row", default="tiny", help="size of the models (default: %(default)s)")
    add("--only", metavar="NAME,...", help="variants or questions beside references (default: all)")
    add("--seeds", type=seeds, default="1,2,3", help="random seeds (default: 1,2,3)")
    add("--finished-only", action="store_true", help="train nothing; report the finished runs")
    table.add_arguments(parser)
    parser.set_defaults(recipe=None)  # a study's variants are of a row's sizes


def run(study: Study, args: Namespace) -> None:
    """Train, translate and score what is not done, and report."""
    recipe, order = table.chosen_recipe(args.row, args), list(study.questions)
    every = sorted(study.variants(args, recipe), key=lambda each: order.index(each.question))
    variants, data = chosen(every, args.only), open_data(args.data)
    check_subset(data, args)
    jobs = Jobs(args, recipe, data, output_folder(args.out))
    with lock_folder(jobs.out):  # the run folders have locks of their own
        if not args.finished_only:
            jobs.train(*(each for each in variants if not each.start))
            converted = [each for each in variants if each.start]
            for variant in converted:
                jobs.convert(variant)
            jobs.train(*(each for each in converted if each.updates))
        finished = {}
        for variant in variants:
            of_variant = jobs.table(variant)
            if of_variant.jobs and not of_variant.waiting():
                results = [read_result(job, args.subset) for job in of_variant.jobs]
                finished[variant] = Cell(recipe.row, variant.name, tuple(results))
        left_out = [variant for variant in variants if variant not in finished]
        if any(variant.question == REFERENCE for variant in left_out):
            raise UserError(f"{jobs.out}: the references are not finished: nothing to compare")
        report(study, recipe, finished, [variant.name for variant in left_out], args)


def chosen(variants: Sequence[Variant], names: str | None) -> list[Variant]:
    """The references, and what ``names`` ask for, variants or questions; or UserError."""
    known = [*dict.fromkeys(each.question for each in variants), *(each.name for each in variants)]
    words = known if names is None else [REFERENCE, *names.split(",")]
    for word in words:
        if word not in known:
            raise UserError(f"--only {word}: unknown; choose of {', '.join(known)}")
    return [each for each in variants if each.name in words or each.question in words]


def training_of(recipe: Training, variant: Variant) -> Training:
    """How a variant is trained. A share of the updates has two checkpoints more than are averaged,
    and no patience: the warm-up would stay as long, and never end.
    """
    training = recipe.changed(**variant.options)
    if variant.updates == 1:
        return training
    training, average = training.changed(patience=None), training.average
    if not variant.updates:
        return training.changed(max_update=0)
    updates = max(1, round(variant.updates * training.updates))
    interval = max(1, updates // max(1, min(updates, average + 2)))
    ours = dict.fromkeys(("save_interval_updates", "validate_interval_updates"), interval)
    never = {"save_interval": 10**6, "validate_interval": 10**6, "no_epoch_checkpoints": True}
    shorter = training.changed(keep_last_epochs=None).shortened(updates)
    return shorter.changed(**ours, **never, keep_interval_updates=average + 1)


def make_start(start: Mapping[str, Any], output: Path, model: Path, data: Path | None) -> None:
    """Convert a trained mha, or copy it, once, with conversion.json beside ``output``. Of the
    "sentences" as many judge the result; the kind is "to", all else are options of `convert`.
    """
    path, made_of = output.with_name("conversion.json"), {**start, "model": sha256(model)}
    if path.exists():
        if read_json(path)["made_of"] != made_of:
            what = "was converted from another model or by other options"
            raise UserError(f"{output.parent} {what}: choose another --out")
        return
    say(f"converting {model} to {output.parent.name}")
    output.parent.mkdir(parents=True, exist_ok=True)
    options, conversion = dict(start), {}
    kind, sentences = options.pop("to"), options.pop("sentences")
    if kind == MHA:
        shutil.copyfile(model, output)
    else:
        with quiet_fairseq():
            material = open_material(open_source(model), data, sentences)
            conversion = convert(output, kind, material, **options)
    facts = {"made_of": made_of, "sha256": sha256(output), "report": conversion}
    write_json(path, facts)


@dataclass(frozen=True)
class Jobs:
    """The jobs of a study in its folder ``out``, one for each variant and seed."""

    args: Namespace
    recipe: Recipe
    data: DataFolder
    out: Path

    def of(self, variant: Variant) -> list[Job]:
        """One for each seed, run-table's of plain kinds; none where conversions are missing."""
        jobs, places = [], {"data": str(self.data.folder)}
        training = training_of(self.recipe.training, variant)
        for seed in sorted(self.args.seeds):
            how = (variant.attention, seed, training, self.data.identity)
            settings = settings_of(self.recipe.row, *how)
            if variant.start:
                start = self._start(variant, seed)
                conversion = start.with_name("conversion.json")
                if not conversion.exists():
                    return []
                settings["start"] = read_json(conversion)["sha256"]
                places = {**places, "start": str(start.resolve())}
            folder = self.out / f"{self.recipe.row}-{variant.name}-seed{seed}"
            jobs.append(plan_job(folder, settings, places, self.recipe.decoding))
        return jobs

    def _start(self, variant: Variant, seed: int) -> Path:
        return self.out / f"start-{variant.name}-seed{seed}" / "start.pt"

    def table(self, *variants: Variant) -> TableRun:
        jobs = [job for variant in variants for job in self.of(variant)]
        return TableRun(jobs, self.data, self.out, self.args)

    def train(self, *variants: Variant) -> None:
        """Train, translate and score what is not done."""
        every = self.table(*variants)
        waiting = every.waiting()

        def tidy() -> None:
            """Remove the checkpoints of scored runs but the last: many runs would fill a disk."""
            for job in filter(every.scored, waiting):
                for path in set(job.checkpoints.glob("checkpoint*.pt")) - {job.last}:
                    path.unlink()

        every.work(after=tidy)

    def convert(self, variant: Variant) -> None:
        """Make the starts of a variant; one that is not trained is counted, translated, scored."""
        for seed in self.args.seeds:
            model = self.out / f"{self.recipe.row}-{MHA}-seed{seed}" / "model.pt"
            make_start(variant.start or {}, self._start(variant, seed), model, self.data.folder)
        for job in () if variant.updates else self.table(variant).waiting():
            with lock_folder(job.folder), Board("sentences") as board:
                job.write_config()
                with atomic_path(job.model) as temporary:
                    shutil.copyfile(job.input_path("start"), temporary)
                translation.count(job)
                evaluate_job(job, board, self.data, self.args)

"""``run-table --study FILE``: train and score the variants of a study, and report them."""

import shutil
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, read_json, sha256, write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.convert.change_kind import convert
from fairseq_mhe.convert.compare import open_material
from fairseq_mhe.experiments.grid import Grid, check_any_finished, raise_failures
from fairseq_mhe.experiments.study import Study, Variant, read_study
from fairseq_mhe.experiments.table import (
    Trainings,
    copied_recipes,
    open_trainings,
    recipe_options,
)
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.report import columns
from fairseq_mhe.report.plots import plot_study, plot_study_costs
from fairseq_mhe.report.results import Cell, check_scored_alike, read_result
from fairseq_mhe.report.study import notes_on_statistics, table_values, variant_rows
from fairseq_mhe.report.table import Block, Table, filled, seed_words
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipe_options import TranslationRecipe
from fairseq_mhe.runs.recipes import NAMES, Recipe
from fairseq_mhe.runs.slurm import SlurmOptions
from fairseq_mhe.runs.training import Training

#: The corpus of a study that needs no download: it is prepared in OUT/data.
_EMBEDDED = "home_assistant_en_de"


def run_study(args: Namespace) -> None:
    """Train and score the unfinished variants and print the report, or submit them to SLURM."""
    if args.kinds:
        raise UserError("the variants of a study say their kinds: leave --kinds out")
    study = read_study(args.study).selected(args.only)
    if args.rows:
        study = replace(study, base=args.rows)
    if args.seeds:
        study = replace(study, seeds=args.seeds)
    trainings = open_trainings(args, _data(study, args))
    trainings.scoring.check(trainings.data)
    slurm: SlurmOptions = from_options(SlurmOptions, args)
    jobs = StudyJobs(study, trainings, recipe_options(args))
    trainings.say_batches([jobs.recipe])
    if slurm.submits:
        _submit(jobs, args, slurm)
        return
    failures: dict[str, str] = {}
    grid = jobs.grid()
    if not slurm.finished_only:
        jobs.converts = True
        failures = grid.train(after=remove_checkpoints)
    if not slurm.no_table:
        report(jobs, grid, grid.command)
    raise_failures(failures, grid.total)


def _data(study: Study, args: Namespace) -> Path:
    """Return the data folder of --data, or prepare the embedded corpus."""
    if args.data:
        return Path(args.data)
    if study.data != _EMBEDDED:
        advice = f"prepare {study.data or 'a corpus'} and give its folder by --data"
        raise UserError(f"{args.study} needs data: {advice}")
    folder = args.out / "data"
    HomeAssistant(out=folder, limit=None).prepare()
    return Path(folder)


def _submit(jobs: "StudyJobs", args: Namespace, slurm: SlurmOptions) -> None:
    copies = copied_recipes([jobs.recipe], args.out) if args.recipe else []
    variant_of = {}
    for variant in jobs.study.variants:
        if variant.start:
            raise UserError(
                f"{variant.name} starts from another variant's model, which SLURM's jobs do not "
                "wait for: run this study without --slurm"
            )
        for job in jobs.of(variant):
            variant_of[job.name] = variant.name

    def words(job: Job) -> list[str]:
        own = ["--only", variant_of[job.name], "--seeds", str(job.seed), "--no-table"]
        return [*args.typed, "--data", str(jobs.trainings.data.folder), *copies, *own]

    jobs.grid().submit(words, slurm)


def remove_checkpoints(job: Job) -> None:
    """Remove all but the last checkpoint of a scored job: many jobs would fill the disk."""
    for path in set(job.checkpoints.glob("checkpoint*.pt")) - {job.last}:
        path.unlink()


class StudyJobs:
    """The jobs of a study: one for each variant and seed."""

    def __init__(
        self, study: Study, trainings: Trainings, options: TranslationRecipe
    ) -> None:
        self.study = study
        self.trainings = trainings
        self._options = options
        self.converts = False  # whether to convert the models from which variants start
        self.recipe = self._read(())

    def _read(self, overrides: Sequence[str]) -> Recipe:
        name = None if self._options.recipe else self.study.base
        return self._options.with_overrides(overrides).read(name, NAMES)

    def grid(self) -> Grid:
        """Return the grid of all jobs."""
        grid = self.trainings.grid([])
        total = len(self.study.variants) * len(self.study.seeds)
        return replace(grid, plan=self.plan, total=total)

    def plan(self) -> list[Job]:
        """Plan a job for each seed and variant, seed by seed, whose start is made."""
        of_variants = [self.of(variant) for variant in self.study.variants]
        jobs = [job for of_variant in of_variants for job in of_variant]
        return sorted(jobs, key=lambda job: self.study.seeds.index(job.seed))

    def of(self, variant: Variant) -> list[Job]:
        """Plan the jobs of a variant: none for a seed whose start is not made."""
        chosen = self._read(variant.overrides)
        training = part_of_training(chosen.training, variant.updates)
        chosen = replace(chosen, training=training)
        trainings = self.trainings
        if variant.precision:
            fixed = replace(trainings.devices, precision=variant.precision)
            trainings = replace(trainings, devices=fixed)
        jobs = []
        for seed in self.study.seeds:
            start = {}
            if variant.start:
                start = self._start(variant, seed)
                if not start:
                    continue
            jobs.append(
                trainings.job(chosen, variant.name, variant.attention, seed, start)
            )
        return jobs

    def _start(self, variant: Variant, seed: int) -> dict[str, str]:
        """Return the checkpoint from which a variant starts; make it if its model is trained."""
        row, out = self.recipe.row, self.trainings.out
        path = out / f"start-{variant.name}-seed{seed}" / "start.pt"
        model = out / f"{row}-{variant.start['variant']}-seed{seed}" / "model.pt"
        if not model.is_file():
            return {}
        if self.converts or path.with_name("conversion.json").exists():
            options = {key: v for key, v in variant.start.items() if key != "variant"}
            (kind,) = set(variant.attention.values())
            made = make_start(path, kind, options, model, self.trainings.data.folder)
            return {"path": str(path.resolve()), "sha256": made}
        return {}

    def cells(self) -> dict[str, Cell]:
        """Return the results of each variant that is finished with all seeds."""
        cells = {}
        subset = self.trainings.scoring.subset
        for variant in self.study.variants:
            jobs = self.of(variant)
            is_whole = len(jobs) == len(self.study.seeds)
            if is_whole and all(map(self.trainings.scoring.scored, jobs)):
                results = [read_result(job, subset) for job in jobs]
                cells[variant.name] = Cell(self.recipe.row, variant.name, tuple(results))
        return cells


def part_of_training(training: Training, updates: float) -> Training:
    """Return a training of a share of its updates that averages as many checkpoints; 0: none."""
    if updates == 1:
        return training
    average = training.average
    training = training.changed(
        patience=None
    )  # with it `shortened` would keep the whole warm-up
    if not updates:
        return training.changed(max_update=0)
    count = max(1, round(updates * training.updates))
    interval = max(1, count // (average + 2))
    intervals = dict.fromkeys(
        ("save_interval_updates", "validate_interval_updates"), interval
    )
    never = {
        "save_interval": 10**6,
        "validate_interval": 10**6,
        "no_epoch_checkpoints": True,
    }
    shorter = training.changed(keep_last_epochs=None).shortened(count)
    return shorter.changed(**intervals, **never, keep_interval_updates=average + 1)


def make_start(
    output: Path, kind: str, options: Mapping[str, Any], model: Path, data: Path | None
) -> str:
    """Convert a trained ``model`` into the checkpoint ``output``; return its SHA-256.

    ``options``: "sentences" pairs of train fit the conversion, and as many of valid measure it; the
    rest are options of `convert`. UserError if ``output`` was converted otherwise.
    """
    record = output.with_name("conversion.json")
    made_of: Json = {"to": kind, **options, "model": sha256(model)}
    if record.exists():
        made = read_json(record)
        if made["made_of"] != made_of:
            problem = "was converted from another model or by other options"
            raise UserError(f"{output.parent} {problem}: choose another --out")
        return str(made["sha256"])
    say(f"converting {model} to {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    source = open_source(model)
    fitted: Any = {}
    if set(source.attention.values()) == {kind}:
        shutil.copyfile(model, output)
    else:
        fit = dict(options)
        sentences = fit.pop("sentences", 0)
        with quiet_fairseq():
            material = open_material(source, data, sentences)
            fitted = convert(output, kind, material, **fit)
    checksum = sha256(output)
    write_json(record, {"made_of": made_of, "sha256": checksum, "report": fitted})
    return checksum


def report(jobs: StudyJobs, grid: Grid, command: str) -> None:
    """Write the table, JSON and picture of the finished variants, and print the table."""
    study = jobs.study
    cells = jobs.cells()
    check_any_finished(list(cells), grid.out)
    check_scored_alike(list(cells.values()))
    references = {variant.name: variant.reference for variant in study.variants}
    attention = {variant.name: variant.attention for variant in study.variants}
    rows = variant_rows(cells, {name: references[name] for name in cells})
    for row in rows:
        row["attention"] = attention[row["variant"]]
    lines = [table_values(row) for row in rows]
    first = next(iter(cells.values())).results[0]
    signature = first.scores["bleu"]["signature"]
    seeds = seed_words(study.seeds)
    training = jobs.recipe.training
    notes = [
        f"BLEU `{signature}` on {first.subset}; valid loss: the lowest of a training, in bits per "
        f"subword. {seeds.capitalize()}.",
        f"Except for what a variant's name says, all follow the recipe of {jobs.recipe.row}: "
        f"{training.updates:,} updates of {training.batch}.",
        *notes_on_statistics(rows),
    ]
    unfinished = [variant.name for variant in study.variants if variant.name not in cells]
    if unfinished:
        notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
    title = f"{study.question} {jobs.recipe.row}, data {jobs.trainings.data.folder.name}; {seeds}"
    plot_study(rows, grid.out / f"{study.name}.png", title)
    plot_study_costs(rows, grid.out / f"{study.name}-costs.png", title)
    block = Block(filled(columns.STUDY, lines), lines)
    results = {
        "training": dict(training.options),
        "variants": rows,
        "unfinished": unfinished,
    }
    table = Table(title, [block], notes)
    gpu = devices.on_gpu(jobs.trainings.devices)
    write_report(table, grid.out / f"{study.name}.md", results, command, gpu)


def write_report(
    table: Table, path: Path, results: Mapping[str, Any], command: str, gpu: bool
) -> None:
    """Write a table and its JSON with date, command and machine, and print the table."""
    facts = {"date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "command": command}
    facts |= {**machine("cuda" if gpu else "cpu"), **software()}
    notes = [*table.notes, *(f"{fact}: {value}" for fact, value in facts.items())]
    whole = Table(table.title, table.blocks, notes)
    whole.write(path, {"facts": facts, **results})
    print(whole.markdown(), end="")

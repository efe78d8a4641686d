"""``run-table --study FILE``: train and score the variants of a study, and report them."""

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.experiments.start import make_start
from fairseq_mhe.experiments.study import Study, Variant, read_study
from fairseq_mhe.experiments.table import TranslationGrid, translation_fields
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.report import columns
from fairseq_mhe.report.plots import plot_study, plot_study_costs
from fairseq_mhe.report.results import (
    Cell,
    check_scored_alike,
    check_seeds,
    precisions,
    read_result,
)
from fairseq_mhe.report.study import notes_on_statistics, variant_rows
from fairseq_mhe.report.table import Block, Table, filled, seed_words
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.pool import run_grid
from fairseq_mhe.runs.recipe_options import TranslationRecipe
from fairseq_mhe.runs.recipes import NAMES, Recipe
from fairseq_mhe.runs.slurm import SlurmJob, SlurmOptions

#: The corpus of a study that needs no download: it is prepared in OUT/data.
_EMBEDDED = "home_assistant_en_de"


def run_study(args: Namespace) -> None:
    """Train and score the unfinished variants and print the report, or submit them to SLURM."""
    if args.kinds:
        raise UserError("the variants of a study say their kinds: leave --kinds out")
    slurm: SlurmOptions = from_options(SlurmOptions, args)
    # A SLURM job trains its own variants alone, since other jobs train the references.
    study = read_study(args.study).selected(args.only, references=not slurm.no_table)
    if args.rows:
        study = replace(study, base=args.rows)
    if args.seeds:
        study = replace(study, seeds=args.seeds)
    options: TranslationRecipe = from_options(TranslationRecipe, args)
    row = None if options.recipe else study.base
    recipes = {}
    for variant in study.variants:
        recipe = options.read(row, NAMES, variant.overrides)
        training = recipe.training.part(variant.updates)
        recipes[variant.name] = replace(recipe, training=training)
    grid = StudyGrid(
        **translation_fields(args, _data(study, args), slurm),
        study=study,
        recipe=options.read(row, NAMES),
        recipes=recipes,
        converts=not (slurm.submits or slurm.finished_only),
    )
    grid.scoring.check(grid.data)
    grid.say_batches([grid.recipe])
    run_grid(grid, slurm)


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


@dataclass(frozen=True, kw_only=True)
class StudyGrid(TranslationGrid):
    """A job for each variant and seed of a study."""

    study: Study
    recipe: Recipe
    recipes: Mapping[str, Recipe]  # name of a variant -> its recipe
    converts: bool  # whether to convert the models from which variants start

    @property
    def total(self) -> int:
        return len(self.study.variants) * len(self.study.seeds)

    def plan(self) -> list[Job]:
        """Plan the jobs of all variants, seed by seed; leave out those without a start yet."""
        jobs = [job for variant in self.study.variants for job in self.jobs_of(variant)]
        return sorted(jobs, key=lambda job: self.study.seeds.index(job.seed))

    def jobs_of(self, variant: Variant) -> list[Job]:
        """Plan a variant's job for each seed; leave out seeds without a start yet."""
        grid: StudyGrid = self
        if variant.precision:
            fixed = replace(self.devices, precision=variant.precision)
            grid = replace(self, devices=fixed)
        recipe = self.recipes[variant.name]
        jobs = []
        for seed in self.study.seeds:
            start = self._start(variant, seed) if variant.start else {}
            if start or not variant.start:
                job = grid.job(recipe, variant.name, variant.attention, seed, start)
                jobs.append(job)
        return jobs

    def _start(self, variant: Variant, seed: int) -> dict[str, str]:
        """Return the checkpoint from which a variant starts; make it if its model is trained."""
        path = self.out / f"start-{variant.name}-seed{seed}" / "start.pt"
        first = f"{self.recipe.row}-{variant.start['variant']}-seed{seed}"
        model = self.out / first / "model.pt"
        if not model.is_file():
            return {}
        if not (self.converts or path.with_name("conversion.json").exists()):
            return {}
        options = {key: v for key, v in variant.start.items() if key != "variant"}
        (kind,) = set(variant.attention.values())
        made = make_start(path, kind, options, model, self.data.folder)
        return {"path": str(path.resolve()), "sha256": made}

    def after(self, job: Job) -> None:
        """Remove all but the last checkpoint: those of many jobs would fill the disk."""
        for path in set(job.checkpoints.glob("checkpoint*.pt")) - {job.last}:
            path.unlink()

    def slurm_jobs(self) -> list[SlurmJob]:
        """Return a SLURM job for each seed of each variant that starts from no other's model.

        It trains all variants that start from its model, so that no job waits for another one.
        """
        jobs = []
        for seed in self.study.seeds:
            grid = replace(self, study=replace(self.study, seeds=[seed]))
            for family in self.study.families():
                planned = [job for variant in family for job in grid.jobs_of(variant)]
                finished = [job for job in planned if self.finished(job)]
                names = ",".join(variant.name for variant in family)
                part = ["--only", names, "--seeds", str(seed)]
                part += ["--data", str(self.data.folder)]
                name = f"{self.recipe.row}-{names}-seed{seed}"
                is_finished = len(finished) == len(family)
                jobs.append(self.slurm_job(name, part, is_finished))
        return jobs

    def cells(self) -> dict[str, Cell]:
        """Return the results of each variant that is finished with all seeds."""
        cells = {}
        for variant in self.study.variants:
            jobs = self.jobs_of(variant)
            if len(jobs) == len(self.study.seeds) and all(map(self.finished, jobs)):
                results = [read_result(job, self.scoring.subset) for job in jobs]
                cells[variant.name] = Cell(self.recipe.row, variant.name, tuple(results))
        return cells

    def tabulate(self) -> bool:
        """Write the table, JSON and picture of the finished variants, and print the table."""
        study = self.study
        cells = self.cells()
        if not cells:
            return False
        for cell in cells.values():
            check_seeds(cell.results)
        check_scored_alike(list(cells.values()))
        variants = {variant.name: variant for variant in study.variants}
        rows = variant_rows(cells, {name: variants[name].reference for name in cells})
        for row in rows:
            row["attention"] = variants[row["variant"]].attention
        unfinished = [name for name in variants if name not in cells]
        notes = [*self._notes(cells), *notes_on_statistics(rows)]
        if unfinished:
            notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
        seeds = seed_words(study.seeds)
        pairs = self.data.manifest["lines"]["train"]
        corpus = f"{'-'.join(self.data.languages)}, {pairs:,} pairs"
        title = f"{study.question} {self.recipe.row}, {corpus}; {seeds}"
        plot_study(rows, self.out / f"{study.name}.png", title)
        plot_study_costs(rows, self.out / f"{study.name}-costs.png", title)
        results = {
            "training": dict(self.recipe.training.options),
            "variants": rows,
            "unfinished": unfinished,
        }
        table = Table(title, [Block(filled(columns.STUDY, rows), rows)], notes)
        gpu = devices.on_gpu(self.devices)
        write_report(table, self.out / f"{study.name}.md", results, self.command, gpu)
        return True

    def _notes(self, cells: Mapping[str, Cell]) -> list[str]:
        """Return notes on the scores and on the training."""
        results = [result for cell in cells.values() for result in cell.results]
        jobs = [result.run for result in results]
        first = results[0]
        signature = first.scores["bleu"]["signature"]
        training = self.recipe.training
        seeds = seed_words(self.study.seeds).capitalize()
        return [
            f"BLEU `{signature}` on {first.subset}; valid loss: the lowest of a training, in bits "
            f"per subword. {seeds}.",
            f"Except for what a variant's name says, all follow the recipe of {self.recipe.row}: "
            f"{training.updates:,} updates of {training.batch}.",
            f"Trained on {_machines(jobs)}, in {precisions(jobs)}.",
        ]


def _machines(jobs: Sequence[Job]) -> str:
    """Return the machines of all trainings; runs may have been copied together."""
    machines = {", ".join(job.config["trained_on"].values()) for job in jobs}
    return "; ".join(sorted(machines))


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

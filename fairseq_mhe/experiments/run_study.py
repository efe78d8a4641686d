"""``run-table --study FILE``: train and score the variants of a study, and report them."""

import itertools
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
from fairseq_mhe.experiments.table import TranslationGrid, run_name, translation_fields
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
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.slurm import SlurmJob

#: The corpus of a study that needs no download: it is prepared in OUT/data.
_EMBEDDED = "home_assistant_en_de"


def run_study(args: Namespace) -> None:
    """Train and score the unfinished variants and print the report, or submit them to SLURM."""
    if args.kinds:
        raise UserError("the variants of a study say their kinds: leave --kinds out")
    # A SLURM job trains its own variants alone, since other jobs train the references.
    study = read_study(args.study).selected(args.only, references=not args.no_table)
    if args.rows:
        study = replace(study, base=args.rows)
    if args.seeds:
        study = replace(study, seeds=args.seeds)
    options: TranslationRecipe = from_options(TranslationRecipe, args)
    row = None if options.recipe else study.base
    recipes = {}
    for variant in study.variants:
        recipe = options.read(row, variant.overrides)
        training = recipe.training.part(variant.updates)
        recipes[variant.name] = replace(recipe, training=training)
    grid = StudyGrid(
        **translation_fields(args, _data(study, args)),
        study=study,
        recipe=options.read(row),
        recipes=recipes,
    )
    grid.scoring.check(grid.data)
    grid.say_batches([grid.recipe])
    run_grid(grid)


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

    @property
    def total(self) -> int:
        return len(self.study.variants) * len(self.study.seeds)

    def plan(self) -> list[Job]:
        """Plan the jobs of all variants, seed by seed; leave out those without a start yet."""
        jobs = []
        for seed, variant in itertools.product(self.study.seeds, self.study.variants):
            start = self._start(variant, seed) if variant.start else {}
            if start or not variant.start:
                job = self.job(
                    self.recipes[variant.name],
                    variant.name,
                    variant.attention,
                    seed,
                    start,
                    variant.precision,
                )
                jobs.append(job)
        return jobs

    def _start(self, variant: Variant, seed: int) -> dict[str, str]:
        """Return the checkpoint from which a variant starts; make it if its model is trained."""
        path = self.out / f"start-{variant.name}-seed{seed}" / "start.pt"
        model = self.out / run_name(self.recipe, variant.origin, seed) / "model.pt"
        if not model.is_file():
            return {}
        trains = not (self.slurm.submits or self.slurm.finished_only)
        if not trains and not path.with_name("conversion.json").exists():
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
        finished, _ = self.split()
        names_of_finished = {job.name for job in finished}
        jobs = []
        for seed, family in itertools.product(self.study.seeds, self.study.families()):
            runs = {run_name(self.recipe, variant.name, seed) for variant in family}
            names = ",".join(variant.name for variant in family)
            part = ["--only", names, "--seeds", str(seed)]
            part += ["--data", str(self.data.folder)]
            name = run_name(self.recipe, names, seed)
            jobs.append(self.slurm_job(name, part, runs <= names_of_finished))
        return jobs

    def cells(self) -> dict[str, Cell]:
        """Return the results of each variant that is finished with all seeds."""
        finished, _ = self.split()
        jobs = {job.name: job for job in finished}
        cells = {}
        for variant in self.study.variants:
            runs = [
                run_name(self.recipe, variant.name, seed) for seed in self.study.seeds
            ]
            if set(runs) <= jobs.keys():
                results = [read_result(jobs[run], self.scoring.subset) for run in runs]
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

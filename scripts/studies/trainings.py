"""What studies that train variants of a row share: seeds, the work, a report that grows."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.report.significance import UNSTABLE, Noise
from fairseq_mhe.runs import devices, pipeline
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.run import Run, plan_run, settings_of
from studies.study import Report, Study, Table

#: The question of variants that others are compared with: they are always trained.
REFERENCE = "reference"


@dataclass(frozen=True, eq=False)
class Variant:
    """A way to build and train the row: everything else is as its recipe has it.

    ``question``: what it is trained for; ``options``: further words for fairseq-train; ``changes``:
    fields of the recipe's ``Training``.
    """

    name: str
    question: str
    attention: Mapping[str, str]
    options: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)


#: Finished runs of each variant, one a seed.
Done = Mapping[Variant, Sequence[Run]]
#: Of the study, the recipe, what is done, and the names of what is not.
Reporter = Callable[[Study, Recipe, Done, Sequence[str]], Report]


def everywhere(kind: str) -> dict[str, str]:
    """One kind of attention at all places."""
    return dict.fromkeys(PLACES, kind)


def add_arguments(parser: argparse.ArgumentParser, questions: Sequence[str]) -> None:
    """Options of a study that trains variants for ``questions``."""
    add = parser.add_argument
    add("--row", default="tiny", help="size of the models (default: %(default)s)")
    told = f"variants, or questions: {', '.join(questions)} (default: all)"
    add("--only", metavar="NAME,...", help=told)
    add("--seeds", default="1,2,3", metavar="N,...", help="random seeds (default: %(default)s)")
    told = "train nothing: the report of what is finished"
    add("--finished-only", action="store_true", help=told)
    cells.add_arguments(parser)


def run(
    args: argparse.Namespace, variants: Callable[[Recipe], Sequence[Variant]], report: Reporter
) -> None:
    """Train, translate and score what is not, a few at a time, and report after each few."""
    recipe = cells.chosen_recipe(args.row, args)
    every = chosen(variants(recipe), args.only)
    seeds = sorted(cells.seeds(args.seeds))
    cells.check_tensorboard(args.tensorboard)
    data = open_prepared(args.data)
    cells.check_subset(data, args.subset)
    out = output_folder(args.out)
    study = Study(out, data, args.subset, devices.on_gpu(args), args.typed)
    with only_one(out, below=False):  # others may evaluate the runs, whose folders have own locks
        runs = {variant: [_open(study, recipe, variant, n) for n in seeds] for variant in every}
        if not args.finished_only:
            _work(study, recipe, runs, args, report)
        if not _report(study, recipe, runs, report, show=True):
            names = " and ".join(v.name for v in every if v.question == REFERENCE)
            raise UserError(f"{out}: {names} are not finished: there is nothing to compare with")


def chosen(every: Sequence[Variant], names: str | None) -> list[Variant]:
    """The references, and what ``names`` ask for: variants or questions, with commas between.

    Raises:
        UserError: there is none of such a name.
    """
    if names is None:
        return list(every)
    words = set(names.split(","))
    known = [variant.name for variant in every]
    questions = list(dict.fromkeys(variant.question for variant in every))
    if unknown := sorted(words - {*known, *questions}):
        raise UserError(
            f"--only {unknown[0]}: there is no such variant; choose of the questions "
            f"{', '.join(questions)}, or of {', '.join(known)}"
        )
    return [v for v in every if v.question == REFERENCE or words & {v.name, v.question}]


def _open(study: Study, recipe: Recipe, variant: Variant, seed: int) -> Run:
    """A variant's run folder; the references' are those that run-table would make."""
    training, data = replace(recipe.training, **variant.changes), study.data.identity
    settings = settings_of(
        recipe.row, variant.attention, seed, training.settings(), data, variant.options
    )
    folder = study.out / f"{recipe.row}-{variant.name}-seed{seed}"
    return plan_run(folder, settings, {"data": str(study.data.folder)})


def _work(
    study: Study, recipe: Recipe, runs: Done, args: argparse.Namespace, report: Reporter
) -> None:
    """All that is not done, a few runs at a time; the report grows with each time."""
    every = [run for of_variant in runs.values() for run in of_variant]
    waiting = [run for run in every if not pipeline.scored(run, study.subset)]
    if not waiting:
        return
    study.check_alike(every)
    device = devices.asked_for(args, len(every))
    together = device.slots * len(next(iter(runs.values())))
    for start in range(0, len(waiting), together):
        part = waiting[start : start + together]
        names = ", ".join(run.name for run in part)
        say(f"{len(waiting) - start} of {len(every)} models to do, now {names}")
        TableRun([part], study.data, study.out, study.subset, args.tensorboard).work(device)
        for run in part:
            _tidy(run)
        if start + together < len(waiting):
            _report(study, recipe, runs, report, show=False)


def _tidy(run: Run) -> None:
    """Remove the checkpoints of a scored run but the last: with many runs they fill the disk."""
    for names in ("checkpoint_*_*.pt", "checkpoint[0-9]*.pt", "checkpoint_best.pt"):
        for path in run.checkpoints.glob(names):
            path.unlink()


def heading(
    about: str,
    study: Study,
    recipe: Recipe,
    done: Done,
    left: Sequence[str],
    summaries: Sequence[Mapping[str, Any]],
) -> tuple[str, dict[str, Any]]:
    """The title of a report ``about`` trainings, and its results but for what is the study's own.

    ``done``, ``left``: as of `Reporter`; ``summaries``: of the variants that are done.
    """
    unfinished = " (unfinished)" if left else ""
    title = f"{about}, {recipe.training.updates:,} updates{unfinished}"
    return title, {
        "row": recipe.row,
        "training": recipe.training.settings(),
        "data": str(study.data.folder),
        "signature": study.signature(next(iter(done.values()))[0]),
        "variants": summaries,
        "unfinished": list(left),
    }


def by_question(
    questions: Mapping[str, str],
    columns: Sequence[str],
    summaries: Sequence[Mapping[str, Any]],
    row: Callable[[Mapping[str, Any]], Sequence[str]],
) -> list[Table]:
    """A report's table for each question (name -> what it means) that a summary is of."""
    tables: list[Table] = []
    for question, told in questions.items():
        rows = [row(summary) for summary in summaries if summary["question"] == question]
        if rows:
            tables.append((f"{question}: {told}", columns, rows))
    return tables


def of_unstable(noise: Noise) -> list[str]:
    """A note of the variants whose seeds are not pooled, if there are any."""
    if not noise.unstable:
        return []
    return [
        f"Unstable: the seeds of {', '.join(sorted(noise.unstable))} differ more than the "
        f"others' (Cochran's test for outlying variances, p < {UNSTABLE:g}); not pooled, and "
        "compared by Welch's t-test."
    ]


def _report(study: Study, recipe: Recipe, runs: Done, report: Reporter, show: bool) -> bool:
    """Write what is known, once the references are finished; whether they are."""
    done: dict[Variant, Sequence[Run]] = {}
    left = []
    for variant, of_variant in runs.items():
        if all(pipeline.scored(run, study.subset) for run in of_variant):
            done[variant] = of_variant
        elif variant.question == REFERENCE:
            return False
        else:
            left.append(variant.name)
    study.check_alike([run for of_variant in done.values() for run in of_variant])
    report(study, recipe, done, left).write(study, show)
    return True

"""``gap-study``: why MHE-Mul stays behind MHA, and what moves its BLEU beyond the noise of seeds.

Each variant changes one thing of the row's MHE-Mul: how its shared projections or head embeddings
begin, their weight decay, the learning rate, where MHE stands, how many heads share its parameters.
Each is trained with several seeds and compared with MHA and with MHE-Mul as the paper has it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.runs import devices, pipeline
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.run import Run, plan_run, settings_of
from studies.gap_report import report
from studies.gap_variants import MHA, MHE, QUESTIONS, Variant, chosen, variants
from studies.study import Study

_Runs = Mapping[Variant, Sequence[Run]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``gap-study``."""
    add = parser.add_argument
    add("--row", default="tiny", help="size of the models (default: %(default)s)")
    told = f"variants, or questions: {', '.join(QUESTIONS)} (default: all)"
    add("--only", metavar="NAME,...", help=told)
    add("--seeds", default="1,2,3", metavar="N,...", help="random seeds (default: %(default)s)")
    told = "train nothing: the report of what is finished"
    add("--finished-only", action="store_true", help=told)
    cells.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train, translate and score what is not, a few at a time, and report after each few."""
    recipe = cells.chosen_recipe(args.row, args)
    every = chosen(variants(recipe.row, recipe.training), args.only)
    seeds = sorted(cells.seeds(args.seeds))
    cells.check_tensorboard(args.tensorboard)
    data = open_prepared(args.data)
    cells.check_subset(data, args.subset)
    out = output_folder(args.out)
    device = devices.asked_for(args, len(every) * len(seeds))
    study = Study(out, data, args.subset, device.gpu, args.typed)
    with only_one(out):
        runs = {variant: [_open(study, recipe, variant, n) for n in seeds] for variant in every}
        if not args.finished_only:
            _work(study, recipe, runs, device, device.slots * len(seeds), args.tensorboard)
        if not _report(study, recipe, runs, show=True):
            raise UserError(
                f"{out}: {MHA} and {MHE} are not finished: there is nothing to compare with"
            )


def _open(study: Study, recipe: Recipe, variant: Variant, seed: int) -> Run:
    """A variant's run folder; the references' are those that run-table would make."""
    training, data = replace(recipe.training, **variant.changes), study.data.identity
    settings = settings_of(
        recipe.row, variant.attention, seed, training.settings(), data, variant.options
    )
    folder = study.out / f"{recipe.row}-{variant.name}-seed{seed}"
    return plan_run(folder, settings, {"data": str(study.data.folder)})


def _work(
    study: Study, recipe: Recipe, runs: _Runs, device: Device, together: int, tensorboard: bool
) -> None:
    """All that is not done, ``together`` runs at a time; the report grows with each time."""
    every = [run for of_variant in runs.values() for run in of_variant]
    waiting = [run for run in every if not pipeline.scored(run, study.subset)]
    for start in range(0, len(waiting), together):
        part = waiting[start : start + together]
        cells.check_disk(part, study.data)
        names = ", ".join(run.name for run in part)
        say(f"{len(waiting) - start} of {len(every)} models to do, now {names}")
        TableRun([part], study.data, study.out, study.subset, tensorboard).work(device)
        for run in part:
            _tidy(run)
        if start + together < len(waiting):
            _report(study, recipe, runs, show=False)


def _tidy(run: Run) -> None:
    """Remove the numbered checkpoints of a scored run: with many runs they would fill the disk."""
    for path in run.checkpoints.glob("checkpoint_*_*.pt"):
        path.unlink()
    (run.checkpoints / "checkpoint_best.pt").unlink(missing_ok=True)


def _report(study: Study, recipe: Recipe, runs: _Runs, show: bool) -> bool:
    """Write what is known, once both references are finished; whether they are."""
    done: dict[Variant, Sequence[Run]] = {}
    left = []
    for variant, of_variant in runs.items():
        if all(pipeline.scored(run, study.subset) for run in of_variant):
            done[variant] = of_variant
        else:
            left.append(variant.name)
    if MHA in left or MHE in left:
        return False
    report(study, recipe, done, left).write(study, show)
    return True

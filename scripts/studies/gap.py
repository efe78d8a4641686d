"""``gap-study``: why MHE-Mul stays behind MHA, and what moves its BLEU beyond the noise of seeds.

Each variant changes one thing of the row's MHE-Mul: how its shared projections or head embeddings
begin, their weight decay, the learning rate, where MHE stands, how many heads share its parameters.
Each is trained with several seeds and compared with MHA and with MHE-Mul as the paper has it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.run import Run, plan_run, settings_of
from studies.gap_report import report
from studies.gap_variants import MHA, MHE, QUESTIONS, Variant, chosen, variants
from studies.study import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``gap-study``."""
    add = parser.add_argument
    add("--row", default="tiny", help="size of the models (default: %(default)s)")
    add(
        "--only",
        metavar="NAME,...",
        help=f"variants, or questions: {', '.join(QUESTIONS)} (default: all)",
    )
    add("--seeds", default="1,2,3", metavar="N,...", help="random seeds (default: %(default)s)")
    add(
        "--finished-only", action="store_true", help="train nothing: the report of what is finished"
    )
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
        gap = _GapStudy(study, recipe, runs)
        if not args.finished_only:
            gap.work(device, device.slots * len(seeds), args.tensorboard)
        gap.report()


def _open(study: Study, recipe: Recipe, variant: Variant, seed: int) -> Run:
    """A variant's run folder; the references' are those that run-table would make."""
    training, data = replace(recipe.training, **variant.changes), study.data.identity
    settings = settings_of(
        recipe.row, variant.attention, seed, training.settings(), data, variant.options
    )
    folder = study.out / f"{recipe.row}-{variant.name}-seed{seed}"
    return plan_run(folder, settings, {"data": str(study.data.folder)})


@dataclass(frozen=True)
class _GapStudy:
    """The runs of every variant, and the report."""

    study: Study
    recipe: Recipe
    runs: Mapping[Variant, Sequence[Run]]

    def work(self, device: Device, together: int, tensorboard: bool) -> None:
        """All that is not done, so many runs at a time; the report grows with each time."""
        study = self.study
        every = [run for runs in self.runs.values() for run in runs]
        waiting = [run for run in every if not study.scored(run)]
        for start in range(0, len(waiting), together):
            part = waiting[start : start + together]
            cells.check_disk(part, study.data)
            names = ", ".join(run.name for run in part)
            say(f"{len(waiting) - start} of {len(every)} models to do, now {names}")
            TableRun([part], study.data, study.out, study.subset, tensorboard).work(device)
            for run in part:
                _tidy(run)
            if start + together < len(waiting) and _comparable(done := self.finished()):
                self.write(done, show=False)

    def finished(self) -> dict[Variant, Sequence[Run]]:
        """The variants of which every seed is scored."""
        return {v: runs for v, runs in self.runs.items() if all(map(self.study.scored, runs))}

    def report(self) -> None:
        """Write and print what is known.

        Raises:
            UserError: a reference is not finished.
        """
        done = self.finished()
        if not _comparable(done):
            raise UserError(
                f"{self.study.out}: {MHA} and {MHE} are not finished: "
                "there is nothing to compare with"
            )
        self.write(done, show=True)

    def write(self, done: Mapping[Variant, Sequence[Run]], show: bool) -> None:
        """The report of the variants that are ``done``; ``show``: print it, too."""
        left = [variant.name for variant in self.runs if variant not in done]
        report(self.study, self.recipe, done, left).write(self.study, show)


def _comparable(done: Iterable[Variant]) -> bool:
    """Whether both references are among them."""
    return {MHA, MHE} <= {variant.name for variant in done}


def _tidy(run: Run) -> None:
    """Remove the numbered checkpoints of a scored run: with many runs they would fill the disk."""
    for path in run.checkpoints.glob("checkpoint_*_*.pt"):
        path.unlink()
    (run.checkpoints / "checkpoint_best.pt").unlink(missing_ok=True)

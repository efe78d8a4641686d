"""What the commands of all tables do: train or submit the jobs, write the table, tell failures."""

import shlex
from abc import abstractmethod
from argparse import Namespace
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_mhe.common.arguments import from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.runs import slurm
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.grid import Grid, Jobs
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.pool import train_grid
from fairseq_mhe.runs.slurm import SlurmJob, SlurmOptions


@dataclass(frozen=True, kw_only=True)
class TableGrid(Grid):
    """A grid with a table."""

    @abstractmethod
    def slurm_jobs(self) -> Sequence[SlurmJob]:
        """Return the SLURM jobs that together do what the grid does, but write no table."""

    @abstractmethod
    def lines(self) -> Collection[object]:
        """Return that for which the table can have lines now."""

    @abstractmethod
    def tabulate(self) -> None:
        """Write the table of what is finished, and print it."""

    def run(self, options: SlurmOptions) -> None:
        """Train and score the unfinished jobs and print the table, or submit them to SLURM."""
        if options.submits:
            slurm.submit(self.slurm_jobs(), self.out, options, self.devices)
            return
        failures: dict[str, str] = {}
        if not options.finished_only:
            failures = train_grid(self)
        if not options.no_table:
            if self.lines():
                self.tabulate()
            elif not failures:
                advice = "wait for its jobs, or leave --finished-only out"
                raise UserError(f"no model of {self.out} is finished yet: {advice}")
        raise_failures(failures, self.total)


def shared_fields(args: Namespace) -> Json:
    """Return the fields of a grid that all commands set alike."""
    return {
        "out": output_folder(args.out),
        "devices": from_options(DeviceOptions, args),
        "command": shlex.join(["fairseq-mhe", *args.typed]),
    }


def finish_jobs(jobs: Sequence[Job], **fields: Any) -> None:
    """Train and score jobs without a table; ``fields``: of `Grid`. UserError if some fail."""
    grid = Jobs(**fields, jobs=jobs)
    raise_failures(train_grid(grid), grid.total)


def raise_failures(failures: dict[str, str], total: int) -> None:
    """Raise UserError if jobs failed, after a line for each reason."""
    if not failures:
        return
    if total == 1:
        raise UserError(*failures.values())
    names_of: dict[str, list[str]] = {}
    for name, reason in failures.items():
        names_of.setdefault(reason, []).append(name)
    for reason, names in names_of.items():
        say(f"{', '.join(names)}: {reason}")
    raise UserError(
        f"{len(failures)} of {total} models failed, for the reasons above; the same command tries "
        "them again"
    )

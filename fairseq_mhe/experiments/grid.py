"""A grid: jobs that are trained, scored and tabulated together, here or by SLURM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.runs import devices, slurm
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.pool import Pool, Work
from fairseq_mhe.runs.slurm import SlurmOptions
from fairseq_mhe.runs.train import check_start


@dataclass(frozen=True)
class Grid:
    """The jobs in the folder ``out``, and what finishes them.

    ``plan`` returns the jobs that can be planned now: fine-tuning, for example, can be planned when
    the model from which it starts is trained. ``total`` counts all jobs.
    """

    out: Path
    total: int
    plan: Callable[[], Sequence[Job]]
    finished: Callable[[Job], bool]
    #: Returns the arguments of the `fairseq-mhe` that scores a trained job, or None.
    scoring: Callable[[Job], list[str] | None]
    devices: DeviceOptions
    command: str  # what the user typed

    def split(self) -> tuple[list[Job], list[Job]]:
        """Return the finished jobs and the others that can be planned now."""
        finished: list[Job] = []
        waiting: list[Job] = []
        for job in self.plan():
            group = finished if self.finished(job) else waiting
            group.append(job)
        return finished, waiting

    def train(self, after: Callable[[Job], object] = lambda job: None) -> dict[str, str]:
        """Train and score the unfinished jobs, and call ``after`` for each; return the failures.

        A failing job does not end the others. Raises UserError at once if devices are missing or
        cannot share a batch, a start is missing, or another process works in a run folder.
        """
        finished, waiting = self.split()
        unfinished = self.total - len(finished)
        if not unfinished:
            return {}
        device = devices.choose_device(self.devices, unfinished)
        for job in waiting:
            check_start(job, device)
        precision = waiting[0].training.precision if waiting else ""
        where = device.describe(precision)
        say(f"{unfinished} of {self.total} models to train, {where}")
        work = Work(self.plan, self.finished, self.scoring, after, self.command)
        with Board(names=[job.name for job in waiting]) as board:
            return Pool(work, device, board).run()

    def submit(
        self, words_of: Callable[[Job], Sequence[str]], options: SlurmOptions
    ) -> None:
        """Submit the unfinished jobs to SLURM; ``words_of``: the command that trains a job."""
        _, waiting = self.split()
        jobs = {job.name: words_of(job) for job in waiting}
        slurm.submit(jobs, self.total, self.out, options, self.devices)


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


def check_any_finished(finished: Sequence[object], out: Path) -> None:
    """Raise UserError if a table would be empty."""
    if not finished:
        advice = "wait for its jobs, or leave --finished-only out"
        raise UserError(f"no model of {out} is finished yet: {advice}")

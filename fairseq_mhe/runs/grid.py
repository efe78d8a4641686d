"""A grid: jobs that are trained, scored and tabulated together; each table lists its own."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.slurm import SlurmJob, SlurmOptions
from fairseq_mhe.runs.translation import ScoringOptions, is_scored


@dataclass(frozen=True, kw_only=True)
class Grid(ABC):
    """The jobs of a command in the folder ``out``; `pool.run_grid` runs them."""

    out: Path
    devices: DeviceOptions
    command: str  # what the user typed; SLURM jobs repeat it
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    scoring: ScoringOptions = field(default_factory=ScoringOptions)  # of translations
    trains_only: bool = False  # whether a job is finished without scores

    @property
    def total(self) -> int:
        """The number of all jobs, with those that cannot be planned yet."""
        return len(self.plan())

    @abstractmethod
    def plan(self) -> Sequence[Job]:
        """Plan the jobs that can be planned now; it is called again after each finished job.

        Fine-tuning, for example, can be planned when the model from which it starts is trained.
        """

    def after(self, job: Job) -> None:  # noqa: B027 - most grids do nothing
        """Do what follows a finished job."""

    def slurm_jobs(self) -> Sequence[SlurmJob]:
        """Return the SLURM jobs that together train and score all jobs, but write no table."""
        raise NotImplementedError  # a command without --slurm never asks

    def slurm_job(self, name: str, part: Sequence[str], finished: bool) -> SlurmJob:
        """Return the SLURM job that does the ``part`` of the command that these options name."""
        _, *words = shlex.split(self.command)
        return SlurmJob(name, [*words, *part, "--no-table"], finished)

    def tabulate(self) -> bool:
        """Print the table of what is finished; return False if nothing is."""
        return True

    def finished(self, job: Job) -> bool:
        """Return whether a job has its results."""
        if self.trains_only:
            return job.metrics.exists()
        if job.translates:
            return is_scored(job, self.scoring)
        return job.scores.exists()

    def split(self) -> tuple[list[Job], list[Job]]:
        """Return the finished jobs and the others that can be planned now."""
        finished: list[Job] = []
        waiting: list[Job] = []
        for job in self.plan():
            group = finished if self.finished(job) else waiting
            group.append(job)
        return finished, waiting

    def scoring_words(self, job: Job) -> list[str]:
        """Return the arguments of the ``fairseq-mhe`` that scores a trained job."""
        words = ["evaluate", str(job.folder), "--data", str(job.input_path("data"))]
        if job.translates:
            words += ["--subset", self.scoring.subset]
            if self.scoring.bleu_tokenizer:
                words += ["--bleu-tokenizer", self.scoring.bleu_tokenizer]
        if self.devices.cpu or self.devices.processes:
            words.append("--cpu")
        return words


@dataclass(frozen=True, kw_only=True)
class Jobs(Grid):
    """Jobs that are all planned already, without a table."""

    jobs: Sequence[Job]

    def plan(self) -> Sequence[Job]:
        return self.jobs

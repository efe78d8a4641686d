"""Jobs of translation on one data folder: trained, translated, scored, and their table written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import Board
from fairseq_mhe.experiments.work import work
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.translation_table import Preset, write_table
from fairseq_mhe.runs import devices, translation
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job


@dataclass(frozen=True)
class TableRun:
    """The jobs of a table, or of a study; its files are written into the folder ``out``.

    ``subset``: what is translated and scored; ``tokenise``: BLEU's, not the language's.
    """

    jobs: Sequence[Job]
    data: DataFolder
    out: Path
    subset: str = "test"
    tensorboard: bool = False
    tokenise: str | None = None

    def scored(self, job: Job) -> bool:
        """Whether a job has its scores."""
        return translation.scored(job, self.subset, self.tokenise)

    def waiting(self) -> list[Job]:
        """The jobs without scores."""
        return [job for job in self.jobs if not self.scored(job)]

    def work(self, device: Device, after: Callable[[], object] = lambda: None) -> None:
        """Train, translate and score every job that waits; arguments and errors as `work.work`."""

        def score(job: Job, board: Board) -> None:
            alone = devices.single(cpu=not device.gpu)  # its speed is measured
            translation.translate(job, self.data, self.subset, alone, board)
            translation.score(job, self.subset, self.tokenise)

        work(self.jobs, device, self.scored, score, self.tensorboard, after)

    def tabulate(self, title: str, preset: Preset) -> None:
        """Write the table of what is finished.

        Raises:
            UserError: nothing is finished.
        """
        waiting = [job.name for job in self.waiting()]
        finished = [job.folder for job in self.jobs if job.name not in waiting]
        if not finished:
            raise UserError(
                f"no cell of {self.out} is finished yet: there is nothing to tabulate"
            )
        write_table(gather(finished, self.subset), self.out, title, preset, waiting)

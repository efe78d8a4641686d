"""A table of translations: its runs on one data folder, their scores, and the table of these."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import Board
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.work import nothing, work
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.translation_table import Preset, write_table
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipes import Recipe


class TableRun:
    """The runs of a table, or of a study, in a folder.

    ``groups``: runs that are compared with each other, so that they are done together: those of a
    row, or of a variant.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Job]],
        data: DataFolder,
        out: Path,
        subset: str = "test",
        tensorboard: bool = False,
        tokenise: str | None = None,
    ) -> None:
        """Check the options; nothing is written.

        Raises:
            UserError: the data have no such subset, TensorBoard is missing, or the folder cannot be
            written in.
        """
        cells.check_subset(data, subset, tokenise)
        cells.check_tensorboard(tensorboard)
        self.groups, self.data, self.out = groups, data, output_folder(out)
        self.subset, self.tensorboard, self.tokenise = subset, tensorboard, tokenise

    def open(self, recipes: Iterable[Recipe], kinds: Iterable[str], seeds: Sequence[int]) -> None:
        """Plan the runs of a table; a group for each row."""
        kinds = list(kinds)
        self.groups = [
            pipeline.plan_runs(recipe, kinds, seeds, self.data, self.out) for recipe in recipes
        ]

    @property
    def runs(self) -> list[Job]:
        """The runs of all groups."""
        return [run for group in self.groups for run in group]

    def finished(self) -> list[Job]:
        """The runs that have their scores."""
        return [run for run in self.runs if self._scored(run)]

    def waiting(self) -> list[Job]:
        """The others."""
        return [run for run in self.runs if not self._scored(run)]

    def _scored(self, run: Job) -> bool:
        return pipeline.scored(run, self.subset, self.tokenise)

    def work(
        self,
        device: Device,
        begin: Callable[[str], None] = nothing,
        after: Callable[[], None] = nothing,
    ) -> None:
        """Train, translate and score every run: there are numbers before all is trained.

        Args:
            device: where to train; models translate one after the other.
            begin: called with what comes now: "train", "translate" or "score".
            after: called when a wave has its scores.

        Raises:
            UserError: as `work.work`.
        """

        def score(wave: Sequence[Job], board: Board) -> None:
            for run in wave:
                pipeline.make_model(run)
            begin("translate")
            board.begin("translating")
            for run in wave:
                pipeline.translate(run, self.data, self.subset, device.alone(), board)
            begin("score")
            for run in wave:
                pipeline.score(run, self.subset, self.tokenise)

        work(self.groups, device, self._scored, score, self.tensorboard, begin, after)

    def tabulate(self, title: str, preset: Preset) -> None:
        """Write the table of what is finished.

        Raises:
            UserError: nothing is finished.
        """
        finished = self.finished()
        if not finished:
            raise UserError(f"no cell of {self.out} is finished yet: there is nothing to tabulate")
        unfinished = [run.name for run in self.waiting()]
        found = gather((run.folder for run in finished), self.subset)
        write_table(found, self.out, title, preset, unfinished)

"""The one way to a table: train, translate, score and tabulate runs on one data folder."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import TRAINING, Board
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.common.time_left import WholeJob
from fairseq_mhe.experiments import cells
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.translation_table import Preset, write_table
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.run import Run
from fairseq_mhe.runs.training import trained

Job = TypeVar("Job")


def _nothing(*_: object) -> None:
    """What is done where nothing else was asked for."""


class TableRun:
    """The runs of a table, or of a study, in a folder.

    ``groups``: runs that are compared with each other, so that they are done together: those of a
    row, or of a variant.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Run]],
        data: DataFolder,
        out: Path,
        subset: str = "test",
        tensorboard: bool = False,
        tokenise: str | None = None,
    ) -> None:
        """Nothing is made before it is seen that it can be.

        Raises:
            UserError: the data have no such subset, TensorBoard is missing, or the folder cannot be
            written in.
        """
        cells.check_subset(data, subset, tokenise)
        cells.check_tensorboard(tensorboard)
        self.groups, self.data, self.out = groups, data, output_folder(out)
        self.subset, self.tensorboard, self.tokenise = subset, tensorboard, tokenise

    def open(self, recipes: Iterable[Recipe], kinds: Iterable[str], seeds: Sequence[int]) -> None:
        """The runs of a table, to be made or gone on with by `work`; a group for each row."""
        kinds = list(kinds)
        self.groups = [
            pipeline.plan_runs(recipe, kinds, seeds, self.data, self.out) for recipe in recipes
        ]

    @property
    def runs(self) -> list[Run]:
        """Those of all groups."""
        return [run for group in self.groups for run in group]

    def finished(self) -> list[Run]:
        """The runs that have their scores."""
        return [run for run in self.runs if self._scored(run)]

    def waiting(self) -> list[Run]:
        """The others."""
        return [run for run in self.runs if not self._scored(run)]

    def _scored(self, run: Run) -> bool:
        return pipeline.scored(run, self.subset, self.tokenise)

    def work(
        self,
        device: Device,
        begin: Callable[[str], None] = _nothing,
        after: Callable[[], None] = _nothing,
    ) -> None:
        """Every run to its scores, a wave after the other: there are numbers before all is trained.

        Args:
            device: where to train; models translate one after the other.
            begin: told what comes now: "train", "translate" or "score".
            after: called when a wave has its scores.

        Raises:
            UserError: another process is at work in one of the run folders, or a step failed.
        """
        with contextlib.ExitStack() as opened:
            for run in self.runs:
                opened.enter_context(only_one(run.folder))
            job = self._job()
            names = [run.name for run in self.runs]
            board = opened.enter_context(Board(names=names, job=job))
            for run in self.finished():
                board.finish(run.name)
            waiting = [[r for r in group if not self._scored(r)] for group in self.groups]
            for wave in waves(waiting, device.slots):
                begin("train")
                board.begin(TRAINING)
                pipeline.train(wave, self.data, device, board, self.tensorboard)
                begin("translate")
                begun = time.monotonic()
                board.begin("translating")
                for run in wave:
                    pipeline.translate(run, self.data, self.subset, device.alone(), board)
                begin("score")
                for run in wave:
                    pipeline.score(run, self.subset, self.tokenise)
                    board.finish(run.name)
                job.translated(len(wave), time.monotonic() - begun)
                after()

    def _job(self) -> WholeJob:
        """All that is not finished, for the time that it still takes."""
        waiting = self.waiting()
        job = WholeJob({run.name: run.training.updates for run in waiting})
        for run in waiting:
            if trained(run):
                job.trained(run.name, run.training.updates, begins=True)
        return job

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


def waves(groups: Iterable[Sequence[Job]], slots: int) -> Iterator[list[Job]]:
    """Groups, as many together as keep all slots at work."""
    wave: list[Job] = []
    for group in groups:
        wave.extend(group)
        if len(wave) >= slots:
            yield wave
            wave = []
    if wave:
        yield wave

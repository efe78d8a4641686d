"""The one way from runs to scores: train side by side, score each, one wave after the other."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.train import train


def nothing(*_: object) -> None:
    """What is done where nothing else was asked for."""


def work(
    groups: Sequence[Sequence[Job]],
    device: Device,
    scored: Callable[[Job], bool],
    score: Callable[[Sequence[Job], Board], None],
    tensorboard: bool = False,
    begin: Callable[[str], None] = nothing,
    after: Callable[[], None] = nothing,
) -> None:
    """Train and score every run without scores, a wave of whole groups at a time.

    Args:
        groups: runs that are compared with each other; a wave's scores come together.
        device: where to train; models are scored one after the other.
        scored: whether a run has its scores.
        score: scores the runs of a wave.
        tensorboard: write logs for TensorBoard too.
        begin: called with "train" when a wave begins.
        after: called when a wave has its scores.

    Raises:
        UserError: another process is at work in one of the run folders, or a step failed.
    """
    runs = [run for group in groups for run in group]
    with contextlib.ExitStack() as opened:
        for run in runs:
            opened.enter_context(only_one(run.folder))
        waiting = [[run for run in group if not scored(run)] for group in groups]
        board = opened.enter_context(Board(names=[run.name for run in runs]))
        for run in runs:
            if scored(run):
                board.finish(run.name)
        for wave in waves(waiting, device.slots):
            begin("train")
            board.begin("training")
            train(wave, device, board, tensorboard)
            board.begin("scoring")
            score(wave, board)
            for run in wave:
                board.finish(run.name)
            after()


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

"""The one way from jobs to scores: train side by side, score each, a few jobs after the other."""

import contextlib
from collections.abc import Callable, Sequence

from fairseq_mhe.common.files import only_one
from fairseq_mhe.common.progress import Board
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.train import train


def work(
    jobs: Sequence[Job],
    device: Device,
    scored: Callable[[Job], bool],
    score: Callable[[Job, Board], object],
    tensorboard: bool = False,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Train and score every job without scores, ``device.slots`` at a time.

    Args:
        jobs: all jobs; their folders are locked.
        device: where to train; models are scored one after the other.
        scored: whether a job has its scores.
        score: scores a trained job.
        tensorboard: write logs for TensorBoard too.
        after: called when the jobs that were trained side by side have their scores.

    Raises:
        UserError: another process is at work in one of the run folders, or a step failed.
    """
    with contextlib.ExitStack() as opened:
        for job in jobs:
            opened.enter_context(only_one(job.folder))
        board = opened.enter_context(Board(names=[job.name for job in jobs]))
        waiting = [job for job in jobs if not scored(job)]
        for job in jobs:
            if job not in waiting:
                board.finish(job.name)
        for first in range(0, len(waiting), device.slots):
            wave = waiting[first : first + device.slots]
            board.state = "training"
            train(wave, device, board, tensorboard)
            board.state = "scoring"
            for job in wave:
                score(job, board)
                board.finish(job.name)
            after()

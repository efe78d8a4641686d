"""Run a grid: train and score its jobs side by side, print its table, and tell failures."""

import contextlib
import re
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic, sleep

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import lock_folder
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.runs import slurm, train
from fairseq_mhe.runs.devices import Device, choose_device
from fairseq_mhe.runs.grid import Grid
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.processes import Child, logged_warnings

#: Seconds of training after which the time for all jobs is estimated.
_ESTIMATE_AFTER = 60.0
_DAY = 86_400.0
#: A count in a line of progress: done/total.
_COUNT = re.compile(r"\b(\d+)/(\d+)\b")
_TRAINING, _SCORING = "training", "scoring"


@dataclass
class _Running:
    """A job in a slot of the device, with the processes of its training or scoring."""

    job: Job
    slot: int
    step: str
    children: list[Child] = field(default_factory=list)

    def stop(self) -> None:
        for child in self.children:
            child.stop()


def run_grid(grid: Grid) -> None:
    """Train and score the unfinished jobs and print the table, or submit the jobs to SLURM.

    A failing job does not end the others; UserError tells at the end that jobs failed.
    """
    options = grid.slurm
    if options.submits:
        slurm.submit(grid.slurm_jobs(), grid.out, options, grid.devices)
        return
    failures = {} if options.finished_only else train_grid(grid)
    if not options.no_table and not grid.tabulate() and not failures:
        advice = "wait for its jobs, or leave --finished-only out"
        raise UserError(f"no model of {grid.out} is finished yet: {advice}")
    if failures and grid.total == 1:
        raise UserError(*failures.values())
    names_of: dict[str, list[str]] = {}
    for name, reason in failures.items():
        names_of.setdefault(reason, []).append(name)
    for reason, names in names_of.items():
        say(f"{', '.join(names)}: {reason}")
    if failures:
        raise UserError(
            f"{len(failures)} of {grid.total} models failed, for the reasons above; the same "
            "command tries them again"
        )


def train_grid(grid: Grid) -> dict[str, str]:
    """Train and score the unfinished jobs of a grid; return the name of each failed job: reason.

    Raises UserError at once if devices are missing or cannot share a batch, a start is missing, or
    another process works in a run folder.
    """
    finished, waiting = grid.split()
    unfinished = grid.total - len(finished)
    if not unfinished:
        return {}
    device = choose_device(grid.devices, unfinished)
    for job in waiting:
        train.check_start(job, device)
    precision = waiting[0].training.precision if waiting else ""
    say(f"{unfinished} of {grid.total} models to train, {device.describe(precision)}")
    with Board(names=[job.name for job in waiting]) as board:
        return Pool(grid, device, board).run()


class Pool:
    """Runs the unfinished jobs of a grid in the slots of a device."""

    def __init__(self, grid: Grid, device: Device, board: Board) -> None:
        self._grid = grid
        self._device = device
        self._board = board
        self._waiting: list[Job] = []
        self._running: list[_Running] = []
        self._failures: dict[str, str] = {}
        self._locks = contextlib.ExitStack()
        self._lock_of: dict[str, contextlib.ExitStack] = {}
        self._began = 0.0  # when the first training started
        self._updates: dict[str, tuple[int, int]] = {}  # job -> updates then, and now
        self._estimated = False

    def run(self) -> dict[str, str]:
        """Train and score all jobs; return the name of each failed job with the reason.

        Raises UserError if another process works in a run folder. If this process is stopped, the
        jobs stop, too; run again, they resume.
        """
        with self._locks:
            try:
                self._plan()
                while self._fill():
                    for running in list(self._running):
                        self._advance(running)
                    self._board.tick()
                    sleep(0.2)
            finally:
                self._stop()
        return self._failures

    def _plan(self) -> None:
        """Refresh the list of waiting jobs and lock their folders."""
        active = {running.job.name for running in self._running}
        self._waiting = []
        for job in self._grid.plan():
            is_open = job.name not in active and job.name not in self._failures
            if is_open and not self._grid.finished(job):
                self._waiting.append(job)
                self._lock(job)

    def _lock(self, job: Job) -> None:
        if job.name not in self._lock_of:
            lock = self._locks.enter_context(contextlib.ExitStack())
            lock.enter_context(lock_folder(job.folder))
            self._lock_of[job.name] = lock

    def _fill(self) -> bool:
        """Start waiting jobs in free slots; return whether any job runs.

        On the CPU a job is scored alone, since its speed is measured: no training starts meanwhile.
        """
        trained = [job for job in self._waiting if train.is_trained(job)]
        to_train = [job for job in self._waiting if not train.is_trained(job)]
        if self._device.gpu:
            starting = [*trained, *to_train]
        elif trained:
            starting = [] if self._running else trained[:1]
        elif any(running.step == _SCORING for running in self._running):
            starting = []
        else:
            starting = to_train
        used = {running.slot for running in self._running}
        free = [slot for slot in range(self._device.slots) if slot not in used]
        for job, slot in zip(starting, free, strict=False):
            self._waiting.remove(job)
            self._start(job, slot)
        return bool(self._running or self._waiting)

    def _start(self, job: Job, slot: int) -> None:
        step = _SCORING if train.is_trained(job) else _TRAINING
        running = _Running(job, slot, step)
        self._running.append(running)
        self._board.state = step
        try:
            if step == _TRAINING:
                done = train.start(
                    job, self._device, slot, self._grid.command, running.children
                )
                self._board.add(job.name, job.training.updates, done)
                self._began = self._began or monotonic()
                self._updates[job.name] = (done, done)
            else:
                self._start_scoring(running)
        except UserError as error:
            self._fail(running, error)

    def _start_scoring(self, running: _Running) -> None:
        """Start the process that scores a job; it locks the run folder itself."""
        job = running.job
        self._lock_of[job.name].close()
        if not (job.folder / "config.json").exists():  # a job without updates
            job.write_config(self._grid.command, self._device.gpu)
        self._board.add(job.name, 0)
        log = job.folder / "scoring.log"
        log.unlink(missing_ok=True)
        # Alone on the CPU it may use all threads.
        threads = self._device.threads
        if not self._device.gpu:
            threads *= self._device.slots * self._device.workers
        environment = self._device.environment(running.slot)
        module = "fairseq_mhe_cli"
        words = self._grid.scoring_words(job)
        child = Child(module, words, log, threads, "fairseq-mhe evaluate", environment)
        running.children.append(child)

    def _advance(self, running: _Running) -> None:
        """Show the progress of a job; go on to its next step if its processes have ended."""
        job = running.job
        try:
            is_running = any(child.running() for child in running.children)
            if running.children:
                log_writer = running.children[0]
                self._show(running, log_writer.new_lines())
            # If one process fails, the others would wait for it forever.
            for child in running.children:
                child.check(f"{running.step} {job.name}")
            if is_running:
                return
            if running.step == _TRAINING:
                train.finish(job)
                self._board.update(job.name, job.training.updates)
        except UserError as error:
            self._fail(running, error)
            return
        self._running.remove(running)
        if running.step == _SCORING or self._grid.finished(job):
            self._board.finish(job.name)
            self._grid.after(job)
        self._plan()

    def _show(self, running: _Running, lines: list[str]) -> None:
        job = running.job
        self._board.warn(job.name, logged_warnings(lines))
        if running.step == _TRAINING:
            for updates, note in train.progress(lines):
                self._board.update(job.name, updates, note=note)
                self._updates[job.name] = (self._updates[job.name][0], updates)
            self._say_estimate()
            return
        for line in lines:
            for done, total in _COUNT.findall(line):
                self._board.update(job.name, int(done), int(total))

    def _say_estimate(self) -> None:
        """Say once how long all trainings will take, if that is more than a day."""
        seconds = monotonic() - self._began
        made = sum(now - before for before, now in self._updates.values())
        if self._estimated or seconds < _ESTIMATE_AFTER or not made:
            return
        self._estimated = True
        jobs = [*self._waiting, *(running.job for running in self._running)]
        left = 0
        for job in jobs:
            if not train.is_trained(job):
                left += job.training.updates - self._updates.get(job.name, (0, 0))[1]
        time_left = left / made * seconds
        if time_left > _DAY:
            days = timedelta(seconds=round(time_left))
            self._board.say(
                f"  {len(jobs)} models with {left:,} updates: about {days} at the speed of the "
                "first minute. Ctrl-C stops them; --updates, --rows or --kinds make it less."
            )

    def _fail(self, running: _Running, error: UserError) -> None:
        """Note why a job failed, stop its processes, and give its slot to the next job."""
        running.stop()
        self._running.remove(running)
        self._failures[running.job.name] = str(error)
        say(f"{running.job.name} failed: {error}")
        self._release(running)
        self._plan()

    def _release(self, running: _Running) -> None:
        if running.step == _TRAINING:
            train.free_untrained(running.job)

    def _stop(self) -> None:
        for running in self._running:
            running.stop()
        for running in self._running:
            self._release(running)

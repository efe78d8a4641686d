"""The loop that trains: fairseq-train for every run that is not done, side by side, resumed."""

import json
import re
import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fairseq_mhe.checkpoints.safe_load import updates_made
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_output, check_writable, write_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.runs.devices import Device, free_port
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.processes import Child, real_warnings, user_dir
from fairseq_mhe.runs.resuming import restore

#: What the log says of a start.
_START = re.compile(r"--- .* fairseq-train from update \d+, (.*)")
_JSON_LINE = re.compile(r"\| (train_inner|valid) \| (\{.*\})\s*$")


def train(runs: Sequence[Job], device: Device, board: Board, tensorboard: bool = False) -> None:
    """Train every run to its last update, ``device.slots`` at a time; finished runs are skipped.

    Raises:
        UserError: the devices cannot share a batch: then nothing was written. Or a training failed:
            the others are stopped, their checkpoints stay, and a new start resumes.
    """
    for run in runs:
        run.training.shared_by(device.workers)
    for run in runs:
        run.keep()
    queue = deque(run for run in runs if not trained(run))
    free = list(reversed(range(device.slots)))
    active: dict[int, _Training] = {}
    try:
        while queue or active:
            while queue and free:
                slot = free.pop()
                active[slot] = _Training(queue.popleft(), device, slot, board, tensorboard)
            time.sleep(0.2)
            for slot, training in list(active.items()):
                if training.ended():
                    free.append(slot)
                    del active[slot]
                    training.finish()
            board.tick()
    finally:
        for training in active.values():
            training.stop()


def trained(run: Job) -> bool:
    """Whether a run was trained to its end, perhaps in a folder without checkpoints any more."""
    return run.steps.done("train", run.settings, [run.metrics])


def training_arguments(run: Job, device: Device, tensorboard: bool = False) -> list[str]:
    """The words after ``fairseq-train``, but for those that tell one model's processes apart.

    Raises:
        UserError: the devices cannot share the run's batch.
    """
    training = run.training
    options: dict[str, Any] = {"user_dir": user_dir(), "save_dir": run.checkpoints}
    if "start" in run.settings:
        # Its weights, and nothing else of it: training begins at update 0.
        options["finetune_from_model"] = run.place("start")
    # Batches are made anew from the epoch's number, so that a resumed training sees the very
    # batches of one that was not stopped. By default they depend on the epoch that the process was
    # started in.
    options["update_epoch_batch_itr"] = "True"
    # A hundred lines in all, several between two checkpoints.
    lines = max(1, min(training.updates // 100, training.interval // 3))
    options |= {"log_format": "json", "log_interval": lines}
    if tensorboard:
        options["tensorboard_logdir"] = run.folder / "tensorboard"
    words = [str(run.place("data") / "bin"), *training.words(device.workers)]
    return [*words, *as_words(options), *device.flags()]


class _Training:
    """One run while it trains, by ``device.workers`` processes; the first's log is the run's."""

    def __init__(
        self, run: Job, device: Device, slot: int, board: Board, tensorboard: bool
    ) -> None:
        self._run, self._board, self._started = run, board, time.monotonic()
        self._where = device.describe(run.training.precision)
        for path in (run.log, run.metrics, run.model, run.counts):
            check_output(path)
        check_writable(run.checkpoints)
        done = restore(run.checkpoints, device.workers, run.training.shared_by(device.workers))
        board.add(run.name, run.training.updates, done)
        run.steps.begin("train")
        self._children: list[Child] = []
        # Killed after its last update: fairseq would make one more.
        if done < run.training.updates:
            words, port = training_arguments(run, device, tensorboard), free_port()
            clock = time.strftime("%Y-%m-%d %H:%M:%S")
            headline = f"{clock} fairseq-train from update {done}, {self._where}"
            for rank in range(device.workers):
                other = run.log.with_name(f"{run.log.stem}.process{rank}.log")
                log = other if rank else run.log
                own = [*words, *device.rank_flags(rank, port)]
                environment = device.environment(slot)
                child = Child("fairseq_cli.train", own, log, device.threads, headline, environment)
                self._children.append(child)

    def ended(self) -> bool:
        """Whether it is over, after showing what is new in the log.

        It is if one process failed: the others would wait for it for ever.
        """
        if not self._children:
            return True
        failed = any(child.failed() for child in self._children)
        over = failed or not any(child.running() for child in self._children)
        lines, name = self._children[0].new_lines(), self._run.name
        self._board.warn(name, real_warnings(lines))
        for tag, values in _log_entries(lines):
            if tag == "train_inner":
                note = f"loss {values['loss']:.2f}, {values['wps']:.0f} tokens/s"
                self._board.update(name, int(values["num_updates"]), note)
        return over

    def finish(self) -> None:
        """See that it made all its updates, and write the metrics.

        Raises:
            UserError: it did not.
        """
        run = self._run
        try:
            for child in sorted(self._children, key=lambda child: not child.failed()):
                child.check(f"training {run.name}")
            _write_metrics(run, self._where)
        except UserError as error:
            run.steps.fail("train", str(error))
            raise
        finally:
            self.stop()
        run.steps.finish("train", run.settings, time.monotonic() - self._started)
        self._board.update(run.name, run.training.updates)

    def stop(self) -> None:
        """End it before its end."""
        for child in self._children:
            child.stop()


def _write_metrics(run: Job, where: str) -> None:
    total = run.training.updates
    made = updates_made(read_checkpoint(run.last))
    if made < total and not run.training.patience:
        raise UserError(
            f"training {run.name} ended after {made} of {total} updates; its log: {run.log}"
        )
    lines = run.log.read_text(encoding="utf-8", errors="replace").split("\n")
    ended = {"ended_by_patience": made} if made < total else {}
    write_json(run.metrics, {**learning_curve(lines), "measured": _places(lines) or where, **ended})


def _places(lines: Iterable[str]) -> str:
    """Where a training was done, as its log says of each start."""
    starts = (_START.fullmatch(line) for line in lines)
    return ", then ".join(dict.fromkeys(start[1] for start in starts if start))


def _log_entries(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """``train_inner`` or ``valid``, and the numbers, of each JSON line that a kill did not cut."""
    for line in lines:
        if match := _JSON_LINE.search(line):
            try:
                values = json.loads(match[2])
                yield match[1], {name: float(v) for name, v in values.items() if v is not None}
            except ValueError:
                continue


def learning_curve(lines: Iterable[str]) -> dict[str, Any]:
    """The curve and speed of a training, from its log.

    Updates that a kill made the training repeat count once, with their last values.

    Returns:
        ``train`` and ``valid``: [updates, bits per target] points, the training's with label
        smoothing; ``tokens_per_second``: target tokens, the median over the log's intervals, None
        if the log has none.
    """
    train: dict[int, float] = {}
    valid: dict[int, float] = {}
    speed: dict[int, float] = {}
    for tag, values in _log_entries(lines):
        if tag == "train_inner":
            updates = int(values["num_updates"])
            train[updates] = values["loss"]
            speed[updates] = values["wps"]
        else:
            loss = values.get("valid_nll_loss", values.get("valid_loss"))
            if loss is not None:  # of further sets the names are others
                valid[int(values["valid_num_updates"])] = loss
    return {
        "train": [list(point) for point in sorted(train.items())],
        "valid": [list(point) for point in sorted(valid.items())],
        "tokens_per_second": round(statistics.median(speed.values()), 1) if speed else None,
    }

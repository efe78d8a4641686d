"""Train runs with fairseq-train, side by side where that is faster, from where they were."""

import json
import re
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fairseq_mhe.checkpoints.safe_load import updates_made
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_output, check_writable, write_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.models.architectures import arch_name
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.processes import USER_DIR, real_warnings
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.resuming import LAST, restore
from fairseq_mhe.runs.run import Run, kind_name
from fairseq_mhe.runs.trainers import Trainers, side_by_side

#: A number of epochs that no training reaches: checkpoints come by updates only.
_NEVER = "1000000"
#: What the log says of a start.
_START = re.compile(r"--- .* fairseq-train from update \d+, (.*)")
_JSON_LINE = re.compile(r"\| (train_inner|valid) \| (\{.*\})\s*$")


def attention_flags(attention: Mapping[str, str]) -> list[str]:
    """The kinds of attention as the model's options."""
    if len(set(attention.values())) == 1:
        return ["--attention", kind_name(attention)]
    return [word for place in PLACES for word in (f"--{place}-attention", attention[place])]


def training_arguments(
    run: Run, data: DataFolder, device: Device, tensorboard: bool = False
) -> list[str]:
    """The words after ``fairseq-train``, but for those that tell one model's processes apart.

    Raises:
        UserError: the devices cannot share the run's batch.
    """
    training = run.training
    interval = str(training.interval)
    words = [str(data.binary), "--user-dir", str(USER_DIR), "--arch", arch_name(run.row)]
    words += attention_flags(run.settings["attention"])
    words += run.settings.get("options", ())
    if "start" in run.settings:
        # Its weights, and nothing else of it: training begins at update 0.
        words += ["--finetune-from-model", str(run.place("start"))]
    words += ["--seed", str(run.seed), *training.flags(), *device.flags()]
    words += ["--update-freq", str(training.update_freq(device.workers))]
    # fairseq drops the last len % 8 sentences of every data set otherwise.
    words += ["--required-batch-size-multiple", "1", "--num-workers", "0"]
    # Batches are made anew from the epoch's number, so that a resumed training sees the very
    # batches of one that was not stopped. By default they depend on the epoch that the process was
    # started in.
    words += ["--update-epoch-batch-itr", "True", "--save-dir", str(run.checkpoints)]
    # One more than the average needs, so that there is one to fall back to.
    kept = str(training.average + 1)
    if training.patience:
        words += ["--patience", str(training.patience), "--keep-last-epochs", kept]
    else:
        words += ["--save-interval", _NEVER, "--validate-interval", _NEVER]
        words += ["--save-interval-updates", interval, "--validate-interval-updates", interval]
        words += ["--keep-interval-updates", kept, "--no-epoch-checkpoints"]
    words += ["--log-format", "json", "--log-interval", str(log_interval(training))]
    if tensorboard:
        words += ["--tensorboard-logdir", str(run.folder / "tensorboard")]
    return words


def log_interval(training: Training) -> int:
    """Updates between two lines of the log: a hundred in all, several between two checkpoints."""
    return max(1, min(training.updates // 100, training.interval // 3))


def train(
    runs: Sequence[Run], data: DataFolder, device: Device, board: Board, tensorboard: bool = False
) -> None:
    """Train every run to its last update, ``device.slots`` at a time; the finished are left alone.

    Raises:
        UserError: one of them failed. The others are stopped; what they had saved stays, and a new
            start goes on.
    """

    def begin(run: Run, slot: int) -> _Training:
        return _Training(run, data, device, slot, board, tensorboard)

    waiting = [run for run in runs if not trained(run)]
    side_by_side(waiting, begin, device.slots, board.tick)


def trained(run: Run) -> bool:
    """Whether a run was trained to its end, perhaps in a folder without checkpoints any more."""
    return run.steps.done("train", run.settings, [run.metrics])


class _Training:
    """One run while it trains, by ``device.workers`` processes; the first's log is the run's."""

    def __init__(
        self, run: Run, data: DataFolder, device: Device, slot: int, board: Board, tensorboard: bool
    ) -> None:
        self._run, self._device, self._board = run, device, board
        self._total = run.training.updates
        self._started = time.monotonic()
        words = training_arguments(run, data, device, tensorboard)
        for path in (run.log, run.metrics, run.model, run.counts):
            check_output(path)
        check_writable(run.checkpoints)
        done = restore(run.checkpoints, device.workers)
        board.add(run.name, self._total, done)
        run.steps.begin("train")
        self._trainers: Trainers | None = None
        # Killed after its last update: fairseq would make one more.
        if done < self._total:
            headline = f"from update {done}, {device.describe(run.training.precision)}"
            self._trainers = Trainers(words, run.log, device, slot, headline)

    def ended(self) -> bool:
        """Whether it is over, after showing what is new in the log."""
        if self._trainers is None:
            return True
        over = self._trainers.over()
        lines = self._trainers.new_lines()
        self._board.warn(self._run.name, real_warnings(lines))
        for tag, values in _log_entries(lines):
            if tag == "train_inner":
                note = f"loss {values['loss']:.2f}, {values['wps']:.0f} tokens/s"
                self._board.update(self._run.name, int(values["num_updates"]), note)
        return over

    def finish(self) -> None:
        """See that it did its work, and write the metrics."""
        try:
            if self._trainers:
                self._trainers.check(f"training {self._run.name}")
            _write_metrics(self._run, self._device)
        except UserError as error:
            self._run.steps.fail("train", str(error))
            raise
        finally:
            self.stop()
        self._run.steps.finish("train", self._run.settings, time.monotonic() - self._started)
        self._board.update(self._run.name, self._total)

    def stop(self) -> None:
        """End it before its end."""
        if self._trainers:
            self._trainers.stop()


def _write_metrics(run: Run, device: Device) -> None:
    total = run.training.updates
    made = updates_made(read_checkpoint(run.checkpoints / LAST))
    if made < total and not run.training.patience:
        raise UserError(
            f"training {run.name} ended after {made} of {total} updates; its log: {run.log}"
        )
    lines = run.log.read_text(encoding="utf-8", errors="replace").split("\n")
    measured = {"measured": _places(lines) or device.describe(run.training.precision)}
    ended = {"ended_by_patience": made} if made < total else {}
    write_json(run.metrics, {**learning_curve(lines), **measured, **ended})


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
        ``train`` and ``valid``: [updates, bits per target token] points, the training's with label
        smoothing; ``tokens_per_second``: target tokens, the median over the log's intervals, None
        where there is none.
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
            valid[int(values["valid_num_updates"])] = values["valid_nll_loss"]
    return {
        "train": [list(point) for point in sorted(train.items())],
        "valid": [list(point) for point in sorted(valid.items())],
        "tokens_per_second": round(statistics.median(speed.values()), 1) if speed else None,
    }

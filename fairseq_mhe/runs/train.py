"""Run fairseq-train for unfinished jobs, several side by side; resume those that were stopped."""

import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import time
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fairseq_mhe.checkpoints.checkpoint import updates_made
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, atomic_path, lock_folder, write_json
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import LAST, Job
from fairseq_mhe.runs.processes import Child, logged_warnings, user_dir

#: The line that `_start` writes into the log; its group describes the device.
_HEADLINE = re.compile(r"(?m)^--- .* fairseq-train from update \d+, (.*)$")


def train_and_score(
    jobs: Sequence[Job],
    args: Namespace,
    scored: Callable[[Job], bool],
    score: Callable[[Job, Board], object],
    after: Callable[[], object] = lambda: None,
) -> None:
    """Train and score every job without scores, in waves of as many jobs as fit on the devices.

    A wave trains side by side and is scored job by job; then ``after`` is called. Raises UserError
    at once if devices are missing or cannot share a batch, a start is missing, or a run is in use.
    """
    waiting = [job for job in jobs if not scored(job)]
    if not waiting:
        return
    device = devices.choose_device(args, len(waiting))
    for job in waiting:
        job.training.shared_by(device.workers)
        if "start" in job.settings and not job.last.exists():
            read_checkpoint(job.input_path("start"))  # a kept run has none
    where = device.describe(waiting[0].training.precision)
    say(f"{len(waiting)} of {len(jobs)} models to train, {where}")
    with contextlib.ExitStack() as opened:
        for job in waiting:
            opened.enter_context(lock_folder(job.folder))
        board = opened.enter_context(Board(names=[job.name for job in waiting]))
        for first in range(0, len(waiting), device.slots):
            wave = waiting[first : first + device.slots]
            board.state = "training"
            train(wave, device, board)
            board.state = "scoring"
            for job in wave:
                score(job, board)
                board.finish(job.name)
            after()


def train(jobs: Sequence[Job], device: Device, board: Board) -> None:
    """Train the jobs that have no metrics, one in each slot; if one fails, stop the others."""
    waiting = [job for job in jobs if not job.metrics.exists()]
    active: list[tuple[Job, list[Child]]] = []
    try:
        for slot, job in enumerate(waiting):
            active.append((job, _start(job, device, slot, board)))
        while active:
            for job, children in active[:]:
                if _has_ended(job, children, board):
                    _write_metrics(job)
                    board.update(job.name, job.training.updates)
                    active.remove((job, children))
            board.tick()
            time.sleep(0.2)
    finally:
        for _, children in active:
            for child in children:
                child.stop()
        for job, _ in active:
            _free_untrained(job)


def _free_untrained(job: Job) -> None:
    """Remove config.json if nothing is trained, so that a corrected recipe can use the folder."""
    no_update = "| train_inner | " not in job.log.read_text("utf-8", "replace")
    if no_update and not any(job.checkpoints.glob("*")):
        (job.folder / "config.json").unlink()


def _has_ended(job: Job, children: Sequence[Child], board: Board) -> bool:
    """Show a job's progress; return whether its processes have ended. UserError if one failed."""
    running = any(child.running() for child in children)
    if children:
        lines = children[0].new_lines()  # the first process writes the job's log
        board.warn(job.name, logged_warnings(lines))
        for entry in _logged("train_inner", lines):
            note = f"loss {entry['loss']:.2f}, {entry['wps']:.0f} tokens/s"
            board.update(job.name, int(entry["num_updates"]), note=note)
    for child in children:  # if one fails, the others would wait for it forever
        child.check(f"training {job.name}")
    return not running


def training_arguments(job: Job, device: Device) -> list[str]:
    """Return fairseq-train's arguments that all processes of a job share."""
    training = job.training
    options: Json = {"user_dir": user_dir(), "save_dir": job.checkpoints}
    if "start" in job.settings:
        # fairseq loads only the weights of this checkpoint: training begins at update 0.
        options["finetune_from_model"] = job.input_path("start")
    # By default the batches of an epoch depend on the epoch in which the process started.
    options["update_epoch_batch_itr"] = "True"
    # Log a hundred times in all, or more often: at least three times between two checkpoints.
    hundredth = training.updates // 100
    save_interval = int(training.options.get("save_interval_updates") or hundredth)
    log_interval = max(1, min(hundredth, save_interval // 3))
    options |= {"log_format": "json", "log_interval": log_interval, "cpu": not device.gpu}
    words = training.words(device.workers)
    if job.config["decoding"] is not None:  # a translation model
        limits = job.open_data().raised_limits(
            {**training.options, **training.shared_by(device.workers)}
        )
        if "max_tokens" in limits:  # for valid alone
            limits["max_tokens_valid"] = limits.pop("max_tokens")
        options |= limits
    data = str(job.input_path("data") / "bin")
    return [data, *words, *as_words(options)]


def _start(job: Job, device: Device, slot: int, board: Board) -> list[Child]:
    """Start or resume the processes of a job; the first one writes the job's log."""
    job.write_config()
    done = restore(job.checkpoints, device.workers)
    board.add(job.name, job.training.updates, done)
    if done >= job.training.updates:
        return []  # killed after the last update: fairseq would make another update
    shared = training_arguments(job, device)
    env = device.environment(slot)
    headline = time.strftime("%Y-%m-%d %H:%M:%S ") + f"fairseq-train from update {done}, "
    headline += device.describe(job.training.precision)
    with socket.socket() as probe:  # finds a free port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(device.workers):
        log = job.log
        if rank > 0:
            log = log.with_name(f"train.process{rank}.log")
        words = [*shared, *as_words(device.rank_options(rank, port))]
        child = Child("fairseq_cli.train", words, log, device.threads, headline, env)
        children.append(child)
    return children


def _write_metrics(job: Job) -> None:
    """Write metrics.json; raises UserError if the training ended before its last update."""
    total = job.training.updates
    updates = updates_made(read_checkpoint(job.last))
    if updates < total and not job.training.patience:
        raise UserError(
            f"training {job.name} ended after {updates} of {total} updates; see its log {job.log}"
        )
    log = job.log.read_text("utf-8", "replace")
    where = ", then ".join(dict.fromkeys(_HEADLINE.findall(log)))
    metrics = {**learning_curve(log.split("\n")), "measured": where}
    if updates < total:
        metrics["ended_by_patience"] = updates
    write_json(job.metrics, metrics)


def _logged(tag: str, lines: Iterable[str]) -> Iterator[dict[str, float]]:
    """Yield the numbers of each JSON log line of a tag, ``train_inner`` or ``valid``."""
    for line in lines:
        _, _, text = line.partition(f"| {tag} | ")
        with contextlib.suppress(ValueError):  # not JSON, or cut short by a kill
            values = json.loads(text).items()
            yield {name: float(value) for name, value in values if value is not None}


def learning_curve(lines: Sequence[str]) -> Json:
    """Return the learning curve and speed of a training from the lines of its log.

    ``train`` and ``valid``: points [updates, bits per target token]; the loss of ``train`` includes
    label smoothing. Of repeated updates the last count. ``tokens_per_second``: median, of targets.
    """
    train = {int(entry["num_updates"]): entry for entry in _logged("train_inner", lines)}
    valid: dict[int, float] = {}
    for entry in _logged("valid", lines):
        loss = entry.get("valid_nll_loss", entry["valid_loss"])
        valid[int(entry["valid_num_updates"])] = loss
    speed = [entry["wps"] for entry in train.values()]
    return {
        "train": [[updates, train[updates]["loss"]] for updates in sorted(train)],
        "valid": sorted(valid.items()),
        "tokens_per_second": round(statistics.median(speed), 1) if speed else None,
    }


def restore(folder: Path, workers: int = 1) -> int:
    """Make checkpoint_last.pt the newest whole checkpoint; return its number of updates, or 0.

    fairseq writes it by copying another checkpoint, so that a kill can leave half a file. Such a
    file is renamed; fairseq reads *.pt only. Raises UserError if a checkpoint cannot be read for
    another reason, or if another number of ``workers`` trained it: each has its share of an epoch.
    """
    states: dict[Path, Json] = {}
    for path in folder.glob("*.pt.tmp"):
        path.unlink()
    # checkpoint_last.pt comes first, so that it stays if another checkpoint has as many updates.
    saved = folder.glob("checkpoint*.pt")
    for path in sorted(saved, key=lambda path: path.name != LAST):
        try:
            states[path] = read_checkpoint(path)
        except UserError as error:
            with path.open("rb") as stream:
                if zipfile.is_zipfile(stream):  # whole: its end is written last
                    raise UserError(f"cannot resume the training: {error}") from error
            os.replace(path, path.with_name(f"{path.name}.damaged"))
    if not states:
        return 0
    newest = max(states, key=lambda path: updates_made(states[path]))
    before = states[newest]["cfg"]["distributed_training"]["distributed_world_size"]
    if before != workers:
        raise UserError(
            f"{newest} was trained on {before} devices, not {workers}: resume on as many as before"
        )
    if newest.name != LAST:
        with atomic_path(folder / LAST) as temporary:
            shutil.copyfile(newest, temporary)
    return updates_made(states[newest])

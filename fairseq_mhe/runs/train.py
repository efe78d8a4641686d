"""Start fairseq-train for a job, resume it where it was stopped, and write its metrics."""

import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fairseq_mhe.checkpoints.checkpoint import updates_made
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, atomic_path, write_json
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import LAST, Job
from fairseq_mhe.runs.processes import Child, user_dir

#: The line that `start` writes into the log; its group describes the device.
_HEADLINE = re.compile(r"(?m)^--- .* fairseq-train from update \d+, (.*)$")


def is_trained(job: Job) -> bool:
    """Return whether a job needs no training: it has metrics, or its recipe has no updates."""
    return job.metrics.exists() or job.training.updates == 0


def check_start(job: Job, device: Device) -> None:
    """Raise UserError if the device cannot share a job's batch, or its start is missing."""
    job.training.shared_by(device.workers)
    if "start" in job.settings and not job.last.exists():
        read_checkpoint(job.input_path("start"))  # a kept run has none


def free_untrained(job: Job) -> None:
    """Remove config.json if nothing is trained, so that a corrected recipe can use the folder."""
    log = job.log.read_text("utf-8", "replace") if job.log.exists() else ""
    if "| train_inner | " not in log and not any(job.checkpoints.glob("*")):
        (job.folder / "config.json").unlink(missing_ok=True)


def progress(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the number of updates and a note for people from lines of fairseq-train's log."""
    for entry in _logged("train_inner", lines):
        yield (
            int(entry["num_updates"]),
            f"loss {entry['loss']:.2f}, {entry['wps']:.0f} tokens/s",
        )


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


def start(
    job: Job, device: Device, slot: int, command: str, children: list[Child]
) -> int:
    """Start or resume the processes of a job, add them to ``children``; return its updates so far.

    The first process writes the job's log. ``command`` is recorded in the run folder.
    """
    job.write_config(command, device.gpu)
    done = restore(job.checkpoints, device.workers)
    if done >= job.training.updates:
        return done  # killed after the last update: fairseq would make another update
    shared = training_arguments(job, device)
    env = device.environment(slot)
    headline = time.strftime("%Y-%m-%d %H:%M:%S ") + f"fairseq-train from update {done}, "
    headline += device.describe(job.training.precision)
    with socket.socket() as probe:  # finds a free port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for rank in range(device.workers):
        log = job.log
        if rank > 0:
            log = log.with_name(f"train.process{rank}.log")
        words = [*shared, *as_words(device.rank_options(rank, port))]
        child = Child("fairseq_cli.train", words, log, device.threads, headline, env)
        children.append(child)
    return done


def finish(job: Job) -> None:
    """Write metrics.json of a training; raises UserError if it ended before its last update."""
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

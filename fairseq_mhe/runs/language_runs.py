"""Runs of language models: fairseq-train in folders of their own, from where it was."""

import contextlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.safe_load import updates_made
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_output, check_writable, read_json, write_json
from fairseq_mhe.common.folder_version import FOLDER_VERSION, check_folder_version
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.common.system import versions
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.language_recipes import shared_out
from fairseq_mhe.runs.processes import USER_DIR, real_warnings
from fairseq_mhe.runs.resuming import LAST, check_unclaimed, restore
from fairseq_mhe.runs.run import TRAIN_AGAIN, check_same_settings
from fairseq_mhe.runs.trainers import Trainers, side_by_side

#: What a run folder says of its model's quality.
SCORES = "scores.json"
_LINE = re.compile(r"\| train_inner \| (\{.*\})\s*$")


@dataclass(frozen=True)
class LanguageRun:
    """A run folder: config.json, status.json, train.log, checkpoints/.

    ``settings``: JSON values, all that decides the result; ``updates``: of the whole training.
    """

    folder: Path
    settings: Mapping[str, Any]
    updates: int

    @property
    def precision(self) -> str:
        """The numbers of its training."""
        return str(self.settings["precision"])

    @property
    def checkpoint(self) -> Path:
        """The model after its last update."""
        return self.folder / "checkpoints" / LAST

    def trained(self) -> bool:
        """Whether it was trained to its end, perhaps in a folder that has no model any more."""
        return Steps(self.folder).done("train", self.settings, [])

    def claim(self) -> None:
        """Write config.json, or see that it has the same settings.

        Raises:
            UserError: as `run.plan_run`.
        """
        path = self.folder / "config.json"
        if path.exists():
            wanted = json.loads(json.dumps(self.settings))
            check_same_settings(self.folder, language_settings(self.folder), wanted)
            return
        check_unclaimed(self.folder)
        facts = {"folder_version": FOLDER_VERSION, "versions": versions()}
        write_json(path, {**self.settings, **facts})


def language_config(folder: Path) -> dict[str, Any]:
    """A language model's run's config.json.

    Raises:
        UserError: it cannot be read, or is of another version.
    """
    config: dict[str, Any] = read_json(folder / "config.json")
    check_folder_version(folder, config, TRAIN_AGAIN)
    return config


def language_settings(folder: Path) -> dict[str, Any]:
    """What of `language_config` decides the result."""
    config = language_config(folder)
    return {k: value for k, value in config.items() if k not in ("folder_version", "versions")}


def each_once(told: Iterable[tuple[str, str]]) -> list[str]:
    """The texts of pairs (text, name), each once; where they differ, with its names behind it."""
    names: dict[str, list[str]] = {}
    for text, name in told:
        names.setdefault(text, []).append(name)
    if len(names) == 1:
        return list(names)
    return [f"{text} ({', '.join(of)})" for text, of in names.items()]


def pretraining_notes(folders: Sequence[Path]) -> list[str]:
    """How the runs of such folders were pre-trained, and with what, in words."""
    made, used = [], []
    for folder in folders:
        config = language_config(folder)
        recipe = config["recipe"]
        how = (
            f"Pre-training: {recipe['updates']:,} updates of {recipe['batch']:,} blocks of "
            f"{recipe['tokens']:,} subwords, in {config['precision']}"
        )
        made.append((how, folder.name))
        used.append(", ".join(f"{name} {of}" for name, of in config["versions"].items()))
    return [f"{line}." for line in (*each_once(made), *dict.fromkeys(used)) if line]


@dataclass(frozen=True)
class Training:
    """What trains a run: fairseq-train's words, but for places, devices and checkpoints.

    ``interval``: updates between two checkpoints; ``batch``: examples of an update, of which a
    device takes ``most`` at a time at most.
    """

    run: LanguageRun
    words: Sequence[str]
    interval: int
    batch: int
    most: int

    def shared_out(self, device: Device) -> tuple[int, int]:
        """As `language_recipes.shared_out`, by the device's workers."""
        return shared_out(self.batch, self.most, device.workers)


@contextlib.contextmanager
def trained(trainings: Sequence[Training], device: Device) -> Iterator[None]:
    """Runs trained to their last update, whose folders are this process's until the block's end.

    ``device.slots`` are trained at a time, from where they were; the done are left.

    Raises:
        UserError: another process is at work in a folder, it has a run of other settings, the
            devices cannot share a batch, or a training failed.
    """
    with contextlib.ExitStack() as opened:
        for training in trainings:
            run = training.run
            training.shared_out(device)
            opened.enter_context(only_one(run.folder))
            say(f"{run.folder.name}: {run.updates:,} updates {device.describe(run.precision)}")
        _train(trainings, device)
        yield


def _train(trainings: Sequence[Training], device: Device) -> None:
    waiting = [training for training in trainings if not training.run.trained()]
    for training in trainings:
        training.run.claim()
    if waiting:
        with Board("updates") as board:

            def begin(training: Training, slot: int) -> _Active:
                return _Active(training, device, slot, board)

            side_by_side(waiting, begin, device.slots, board.tick)


class _Active:
    """A training while it runs."""

    def __init__(self, training: Training, device: Device, slot: int, board: Board) -> None:
        self._run, self._board, self._started = training.run, board, time.monotonic()
        checkpoints, self._log = self._run.checkpoint.parent, self._run.folder / "train.log"
        check_writable(checkpoints)
        check_output(self._log)
        self._steps = Steps(self._run.folder)
        self._steps.begin("train")
        at_a_time, _ = training.shared_out(device)
        done = restore(checkpoints, device.workers, at_a_time)
        board.add(self._run.folder.name, self._run.updates, done)
        self._trainers: Trainers | None = None
        if done < self._run.updates:
            headline = f"from update {done}, {device.describe(self._run.precision)}"
            line = _line(training, device)
            self._trainers = Trainers(line, self._log, device, slot, headline)

    def ended(self) -> bool:
        """Whether it is over, after showing what is new in the log."""
        if self._trainers is None:
            return True
        over = self._trainers.over()
        lines, name = self._trainers.new_lines(), self._run.folder.name
        self._board.warn(name, real_warnings(lines))
        for text in lines:
            if match := _LINE.search(text):
                values = json.loads(match[1])
                note = f"loss {values['loss']}, {values['wps']} tokens/s"
                self._board.update(name, int(values["num_updates"]), note)
        return over

    def finish(self) -> None:
        """See that it made all its updates.

        Raises:
            UserError: it did not.
        """
        name = self._run.folder.name
        try:
            if self._trainers:
                self._trainers.check(f"training {name}")
            made = updates_made(read_checkpoint(self._run.checkpoint))
            if made < self._run.updates:
                raise UserError(
                    f"training {name} ended after {made} of {self._run.updates} updates; its log: "
                    f"{self._log}"
                )
        except UserError as error:
            self._steps.fail("train", str(error))
            raise
        finally:
            self.stop()
        self._steps.finish("train", self._run.settings, time.monotonic() - self._started)
        self._board.update(name, self._run.updates)

    def stop(self) -> None:
        """End it before its end."""
        if self._trainers:
            self._trainers.stop()


def _line(training: Training, device: Device) -> list[str]:
    """All of fairseq-train's words."""
    run = training.run
    line = [*training.words, "--user-dir", str(USER_DIR), *device.flags(), "--num-workers", "0"]
    at_a_time, times = training.shared_out(device)
    line += ["--batch-size", str(at_a_time), "--update-freq", str(times)]
    line += ["--save-dir", str(run.checkpoint.parent), "--no-epoch-checkpoints"]
    line += ["--save-interval-updates", str(training.interval), "--keep-interval-updates", "1"]
    line += ["--required-batch-size-multiple", "1", "--update-epoch-batch-itr", "True"]
    return [*line, "--log-format", "json", "--log-interval", str(max(1, run.updates // 100))]

"""One run of a language model: fairseq-train in a folder of its own, from where it was."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.safe_load import load_checkpoint, updates_made
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_output, check_writable, read_json, write_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import Steps
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.processes import USER_DIR, real_warnings
from fairseq_mhe.runs.resuming import LAST, restore
from fairseq_mhe.runs.trainers import Trainers

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
    def checkpoint(self) -> Path:
        """The model after its last update."""
        return self.folder / "checkpoints" / LAST

    def trained(self) -> bool:
        """Whether it was trained to its end with these settings."""
        return Steps(self.folder).done("train", self.settings, [self.checkpoint])

    def train(self, words: Sequence[str], device: Device, interval: int) -> None:
        """Train it to its last update, or go on; nothing is done where that is done.

        Args:
            words: fairseq-train's, but for places, devices and checkpoints.
            device: where.
            interval: updates between two checkpoints.

        Raises:
            UserError: the folder has a run of other settings, or training failed.
        """
        self._claim()
        check_writable(self.checkpoint.parent)
        log = self.folder / "train.log"
        check_output(log)
        line = [*words, "--user-dir", str(USER_DIR), *device.flags(), "--num-workers", "0"]
        line += ["--save-dir", str(self.checkpoint.parent), "--no-epoch-checkpoints"]
        line += ["--save-interval-updates", str(interval), "--keep-interval-updates", "1"]
        line += ["--required-batch-size-multiple", "1", "--update-epoch-batch-itr", "True"]
        line += ["--log-format", "json", "--log-interval", str(max(1, self.updates // 100))]

        def act() -> None:
            done = restore(self.checkpoint.parent, device.workers)
            if done < self.updates:
                self._run(line, device, log, done)
            made = updates_made(load_checkpoint(self.checkpoint))
            if made < self.updates:
                raise UserError(
                    f"training {self.folder.name} ended after {made} of {self.updates} updates; "
                    f"its log: {log}"
                )

        Steps(self.folder).perform("train", self.settings, [self.checkpoint], act)

    def _claim(self) -> None:
        """Write config.json, or see that it is of the same settings."""
        path = self.folder / "config.json"
        if path.exists():
            found = read_json(path)
            for name, value in self.settings.items():
                if found.get(name) != json.loads(json.dumps(value)):
                    raise UserError(
                        f"{self.folder} is a run with {name} {found.get(name)!r:.60}, not "
                        f"{value!r:.60}: name another --out"
                    )
            return
        write_json(path, self.settings)

    def _run(self, line: Sequence[str], device: Device, log: Path, done: int) -> None:
        name = self.folder.name
        trainers = Trainers(line, log, device, 0, f"from update {done}, {device.describe()}")
        try:
            with Board("updates") as board:
                board.add(name, self.updates, done)
                over = False
                while not over:
                    time.sleep(0.2)
                    over = trainers.over()
                    self._show(trainers.new_lines(), board)
                trainers.check(f"training {name}")
        finally:
            trainers.stop()

    def _show(self, lines: Sequence[str], board: Board) -> None:
        board.warn(self.folder.name, real_warnings(lines))
        for text in lines:
            if match := _LINE.search(text):
                values = json.loads(match[1])
                note = f"loss {values['loss']}, {values['wps']} tokens/s"
                board.update(self.folder.name, int(values["num_updates"]), note)
        board.tick()

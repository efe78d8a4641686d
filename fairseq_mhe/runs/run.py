"""A run is a folder: what made it (config.json), how far it is (status.json), and each step's result."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json

#: Where attention sits; the keys of a run's "attention".
PLACES = ("encoder", "decoder", "cross")


class Steps:
    """The steps that were finished in a folder, in its status.json.

    A step is known by its name and a key, the hash of everything it was made from (the keys of the
    steps before it among them), so that it is done again when any of that changes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "status.json"

    def status(self) -> dict[str, Any]:
        """The content of status.json."""
        return read_json(self._path) if self._path.exists() else {"state": "new", "steps": {}}

    def done(self, name: str, inputs: Mapping[str, Any], outputs: Sequence[Path]) -> bool:
        """Whether step ``name`` was finished from these inputs and its outputs are still there."""
        finished = self.status()["steps"].get(name)
        return bool(finished) and finished["key"] == key(inputs) and all(path.exists() for path in outputs)

    def begin(self, name: str) -> None:
        """Note that a step is running."""
        self._update(state="running", step=name)

    def finish(self, name: str, inputs: Mapping[str, Any], seconds: float) -> None:
        """Note that a step's results are in place."""
        steps = self.status()["steps"]
        finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        steps[name] = {"key": key(inputs), "finished": finished, "seconds": round(seconds, 1)}
        self._update(state="finished", step=name, steps=steps)

    def fail(self, name: str, reason: str) -> None:
        """Note that a step failed, and why."""
        self._update(state="failed", step=name, error=reason)

    def perform(
        self, name: str, inputs: Mapping[str, Any], outputs: Sequence[Path], action: Callable[[], object]
    ) -> bool:
        """Run ``action`` unless the step is done; whether it was run."""
        if self.done(name, inputs, outputs):
            return False
        self.begin(name)
        start = time.monotonic()
        try:
            action()
        except UserError as error:
            self.fail(name, str(error))
            raise
        self.finish(name, inputs, time.monotonic() - start)
        return True

    def _update(self, **changes: Any) -> None:
        status = {**self.status(), **changes}
        if status["state"] != "failed":
            status.pop("error", None)
        write_json(self._path, status)


@dataclass(frozen=True)
class Run:
    """A run folder and the content of its config.json."""

    folder: Path
    config: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides which model comes out: row, attention, seed, training, data."""
        return self.config["settings"]

    @property
    def row(self) -> str:
        """The model's size."""
        return self.settings["row"]

    @property
    def kind(self) -> str:
        """The kind of attention; of a mixed model, each place's."""
        return kind_name(self.settings["attention"])

    @property
    def seed(self) -> int:
        """The random seed."""
        return self.settings["seed"]

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def steps(self) -> Steps:
        """What was done in the folder."""
        return Steps(self.folder)

    @property
    def log(self) -> Path:
        """Everything fairseq-train printed."""
        return self.folder / "train.log"

    @property
    def checkpoints(self) -> Path:
        """fairseq-train's --save-dir."""
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The learning curve and the training speed."""
        return self.folder / "metrics.json"

    @property
    def model(self) -> Path:
        """The averaged checkpoint, which generates."""
        return self.folder / "model.pt"

    @property
    def counts(self) -> Path:
        """The model's parameters and cache."""
        return self.folder / "counts.json"

    def subset(self, name: str) -> Path:
        """The folder of a test set's translations and scores."""
        return self.folder / name


def run_name(row: str, attention: Mapping[str, str], seed: int) -> str:
    """The name of a run's folder."""
    return f"{row}-{kind_name(attention)}-seed{seed}"


def kind_name(attention: Mapping[str, str]) -> str:
    """One name for the kinds at all places: the kind, or of a mixed model the three with dashes between."""
    kinds = [attention[place] for place in PLACES]
    return kinds[0] if len(set(kinds)) == 1 else "-".join(kinds)


def settings_of(
    row: str,
    attention: Mapping[str, str],
    seed: int,
    training: Mapping[str, Any],
    data: Mapping[str, Any],
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """What decides which model comes out. Runs of equal settings are the same, whichever command has made them.

    Args:
        row: of the recipes.
        attention: place -> kind.
        seed: of weights and batches.
        training: ``Training.settings()``.
        data: ``Dataset.identity``.
        options: further words for fairseq-train.
    """
    settings = {"row": row, "attention": dict(attention), "seed": seed, "training": training, "data": data}
    return {**settings, "options": list(options)} if options else settings


def open_run(folder: Path, settings: Mapping[str, Any], surroundings: Mapping[str, Any]) -> Run:
    """Make a run folder, or go on with one of the same settings.

    Args:
        settings: what decides the result (JSON values). A folder made with others is refused.
        surroundings: what may change from start to start, such as where the data lies.

    Raises:
        UserError: the folder is of other settings.
    """
    path = folder / "config.json"
    wanted = json.loads(json.dumps(settings))
    if path.exists():
        config = read_json(path)
        if config.get("settings") != wanted:
            difference = _difference(config.get("settings") or {}, wanted)
            raise UserError(
                f"{folder} was made with other settings ({difference}): choose another --out, or remove that folder"
            )
        config["surroundings"] = dict(surroundings)
    else:
        config = {"settings": wanted, "surroundings": dict(surroundings), "versions": versions()}
    write_json(path, config)
    return Run(folder, config)


def read_run(folder: Path) -> Run:
    """A run folder that exists.

    Raises:
        UserError: it is no run folder.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is no run folder: it has no config.json")
    return Run(folder, read_json(folder / "config.json"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        UserError: it cannot be read, or is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"cannot read {path}: it holds no JSON object")
    return value


def key(inputs: Mapping[str, Any]) -> str:
    """A hash of JSON values, whatever the order of the names."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def only_one(folder: Path, below: bool = True) -> Iterator[None]:
    """Keep a second process out of ``folder`` while this one works in it, and tidy up what a killed one left there.

    Args:
        folder: it exists.
        below: the folders in it are tidied too; not where others may be at work in them.

    Raises:
        UserError: another process is at work there.
    """
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another fairseq-mhe is at work in {folder}: wait for its end, or stop it") from error
        for leftover in folder.rglob(".*.part") if below else folder.glob(".*.part"):
            leftover.unlink(missing_ok=True)
        yield


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> str:
    """The first setting that differs, with both values."""
    for name in [*old, *new]:
        before, now = old.get(name), new.get(name)
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            return _difference(before, now, f"{prefix}{name} ")
        return f"{prefix}{name}: {before!s:.12}, now {now!s:.12}"  # no more than a hash's beginning
    return "unreadable"

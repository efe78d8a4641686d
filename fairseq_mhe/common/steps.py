"""Steps that are done once: what each was made from, and the lock that keeps others out."""

import contextlib
import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json

#: How the names of temporary folders begin, which a killed process leaves.
WORK_PREFIX = ".fairseq-mhe-work-"


class Steps:
    """The steps of a folder, each of which is done once, as its status.json records.

    A step that was finished from the same inputs and whose outputs are still there is not done
    again. What its inputs hold is for the caller to say: options, versions, and the keys or
    checksums of what the steps before it have made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "status.json"

    def status(self) -> dict[str, Any]:
        """The content of status.json.

        Raises:
            UserError: it cannot be read.
        """
        if not self._path.exists():
            return {"state": "new", "steps": {}}
        found: dict[str, Any] = read_json(self._path)
        return found

    def done(self, name: str, inputs: Mapping[str, Any], outputs: Sequence[Path]) -> bool:
        """Whether step ``name`` was finished from these inputs and its outputs are still there."""
        finished = self.status()["steps"].get(name)
        if not finished or finished["key"] != key(inputs):
            return False
        return all(path.exists() for path in outputs)

    def perform(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[Path],
        action: Callable[[], object],
    ) -> bool:
        """Run ``action`` unless the step is done; whether it was run."""
        if self.done(name, inputs, outputs):
            return False
        self.begin(name)
        start = time.monotonic()
        try:
            made = action()
        except UserError as error:
            self.fail(name, str(error))
            raise
        self.finish(name, inputs, time.monotonic() - start, made)
        return True

    def begin(self, name: str) -> None:
        """Note that a step is running."""
        self._update(state="running", step=name)

    def finish(
        self, name: str, inputs: Mapping[str, Any], seconds: float, made: object = None
    ) -> None:
        """Note that a step's results are in place; ``made`` is what its action has returned."""
        steps = self.status()["steps"]
        finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        steps[name] = {"key": key(inputs), "finished": finished, "seconds": round(seconds, 1)}
        self._update(state="finished", step=name, steps=steps)

    def fail(self, name: str, reason: str) -> None:
        """Note that a step failed, and why.

        Raises:
            UserError: that cannot be written, as on a full disk, which may be why it failed.
        """
        try:
            self._update(state="failed", step=name, error=reason)
        except UserError as error:
            raise UserError(f"{error} ({reason})") from error

    def _update(self, **changes: Any) -> None:
        status = {**self.status(), **changes}
        if status["state"] != "failed":
            status.pop("error", None)
        write_json(self._path, status)


def key(inputs: Mapping[str, Any]) -> str:
    """A hash of JSON values, whatever the order of the names."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder``, and remove the work folders of a killed one.

    Raises:
        UserError: as `locked`.
    """
    with locked(folder / ".lock"):
        for work in folder.glob(f"{WORK_PREFIX}*"):
            shutil.rmtree(work, ignore_errors=True)
        yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from the same work in the folder of the lock ``path``, which is made.

    Raises:
        UserError: another process is at work there, or the folder cannot be written.
    """
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = path.open("a")
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or folder}: {error.strerror or error}"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"another fairseq-mhe is at work in {folder}: wait for its end, or stop it"
            ) from error
        yield

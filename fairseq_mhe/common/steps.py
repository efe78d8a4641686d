"""Steps that are done once: what a folder's steps were made from, and the lock that keeps others out of it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json


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
        return (
            bool(finished)
            and finished["key"] == key(inputs)
            and all(path.exists() for path in outputs)
        )

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
            raise UserError(
                f"another fairseq-mhe is at work in {folder}: wait for its end, or stop it"
            ) from error
        for leftover in folder.rglob(".*.part") if below else folder.glob(".*.part"):
            leftover.unlink(missing_ok=True)
        yield

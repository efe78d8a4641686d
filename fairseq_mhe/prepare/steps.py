"""Steps that are done once: each result is recorded in the manifest with what it was made from."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256, write_json

MANIFEST = "manifest.json"
FORMAT = 1
GB = 10**9
WORK_PREFIX = ".work-"

# step, lines done, lines in all; called with done == total when a step is finished or was there
# already
Report = Callable[[str, int, int], None]
Counts = dict[str, Any]


def read_manifest(data: Path) -> dict[str, Any]:
    """The manifest of a prepared data folder.

    Raises:
        UserError: it is missing, damaged, or of another format.
    """
    path = data / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is not there; make {data} with fairseq-mhe prepare") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); delete it and prepare {data} again"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(
            f"{path} is not a manifest of format {FORMAT}; delete it and prepare {data} again"
        )
    return manifest


def check_room(folder: Path, need: int, purpose: str) -> None:
    """See before something long begins that the disk has room for it.

    Raises:
        UserError: it has not; the line says how much there is and how much is needed.
    """
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UserError(
            f"the disk of {folder} has {free / GB:.1f} GB free, {purpose} needs about {need / GB:.1f} GB; "
            "make room or choose another folder"
        )


class Steps:
    """A data folder under construction; open it with `open_steps`.

    ``manifest["steps"]`` says of each finished step what it was made from, its counts, and its
    files' sizes and sha256.
    """

    def __init__(self, data: Path, heading: Mapping[str, Any]) -> None:
        """``heading``: the manifest's keys above its steps."""
        self.data = data
        found = read_manifest(data)["steps"] if (data / MANIFEST).exists() else {}
        self.manifest: dict[str, Any] = {
            "format": FORMAT,
            "state": "unfinished",
            **heading,
            "steps": found,
        }

    def checksums(self, step: str, folder: str = "") -> dict[str, str]:
        """File -> sha256 of what ``step`` has made, all or only in ``folder``."""
        files = self.manifest["steps"][step]["files"]
        return {name: entry["sha256"] for name, entry in files.items() if name.startswith(folder)}

    def sizes(self, step: str, folder: str = "") -> dict[str, int]:
        """File -> bytes of what ``step`` has made, all or only in ``folder``."""
        files = self.manifest["steps"][step]["files"]
        return {name: entry["bytes"] for name, entry in files.items() if name.startswith(folder)}

    def is_done(self, step: str, made_from: Mapping[str, Any]) -> bool:
        """Whether ``step`` was made from the same things and its files are there, of the recorded size."""
        record = self.manifest["steps"].get(step)
        if record is None or record.get("made_from") != made_from:
            return False
        paths = {self.data / name: entry["bytes"] for name, entry in record["files"].items()}
        return all(path.is_file() and path.stat().st_size == size for path, size in paths.items())

    def run(
        self,
        step: str,
        made_from: Mapping[str, Any],
        action: Callable[[Path], Counts],
        room: int = 0,
    ) -> Counts:
        """Do ``step`` unless it is done already, and return its counts.

        ``action`` writes files under the folder it is given, with the paths they shall have in the
        data folder; they are moved there, and recorded, when it returns. ``made_from`` is
        everything (inputs' checksums, options, tools' versions) that decides what it writes, as
        JSON has it: lists, no tuples. ``room``: bytes that it will write, roughly.

        Raises:
            UserError: the disk has not that much room.
        """
        if not self.is_done(step, made_from):
            check_room(self.data, room, f"step {step!r}")
            with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=self.data) as work:
                counts = action(Path(work))
                self._publish(step, made_from, Path(work), counts)
        return self.manifest["steps"][step]["counts"]

    def _publish(self, step: str, made_from: Mapping[str, Any], work: Path, counts: Counts) -> None:
        names = sorted(str(path.relative_to(work)) for path in work.rglob("*") if path.is_file())
        files = {
            name: {"bytes": (work / name).stat().st_size, "sha256": sha256(work / name)}
            for name in names
        }
        # The old record goes first: killed while files are moved, the step counts as not done.
        stale = self.manifest["steps"].pop(step, {"files": {}})
        self.write("unfinished")
        for name in stale["files"]:
            (self.data / name).unlink(missing_ok=True)
        for name in names:
            (self.data / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / name, self.data / name)
        self.manifest["steps"][step] = {"made_from": made_from, "counts": counts, "files": files}
        self.write("unfinished")

    def write(self, state: str) -> None:
        """Write the manifest, unless the file says the same already."""
        self.manifest["state"] = state
        path = self.data / MANIFEST
        if not path.exists() or read_manifest(self.data) != self.manifest:
            write_json(path, self.manifest)


@contextlib.contextmanager
def open_steps(data: Path, heading: Mapping[str, Any]) -> Iterator[Steps]:
    """Make or reopen the data folder, for one process at a time.

    Raises:
        UserError: it cannot be written, the disk is full, or another process is at work in it.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        with (data / ".lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"another process is preparing {data}; wait for it or choose another folder"
                ) from None
            for left_over in data.glob(f"{WORK_PREFIX}*"):
                shutil.rmtree(left_over, ignore_errors=True)
            yield Steps(data, heading)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or data}: {error.strerror or error}"
        ) from error

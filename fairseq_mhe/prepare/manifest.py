"""manifest.json of a data folder: what each step was made from, its counts, and its files."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    FOLDER_VERSION,
    WORK_PREFIX,
    check_folder_version,
    check_room,
    only_one,
    read_json,
    sha256_of_all,
    write_json,
)
from fairseq_mhe.prepare.progress import report

MANIFEST = "manifest.json"
#: The "form" of a manifest.
PARALLEL, TEXT, TASK = "parallel", "text", "task"
#: The heading of a folder of files as they are published.
DOWNLOADED = {"form": "downloaded"}
#: Form -> what the folder holds.
CONTENT = {
    PARALLEL: "parallel text",
    TEXT: "running text",
    TASK: "a task",
    "downloaded": "downloaded text",
}

Counts = dict[str, Any]


def read_manifest(data: Path) -> dict[str, Any]:
    """The manifest of a data folder; UserError if it is missing, damaged or of another version."""
    path = data / MANIFEST
    if not path.exists():
        raise UserError(f"{path} is missing; make {data} with fairseq-mhe prepare")
    manifest: dict[str, Any] = read_json(path)
    check_folder_version(data, manifest, "prepare it again, into a new folder")
    return manifest


@dataclass
class Manifest:
    """The steps of a data folder under construction; open it with `open_manifest`.

    ``content["steps"]`` has of each finished step what it was made from, its counts, and its files'
    sizes and SHA-256.
    """

    folder: Path
    content: dict[str, Any]
    workers: int

    def checksums(self, step: str, folder: str = "") -> dict[str, str]:
        """File -> SHA-256 of what ``step`` has written in ``folder``."""
        files = self.content["steps"][step]["files"]
        return {
            name: entry["sha256"] for name, entry in files.items() if name.startswith(folder)
        }

    def run(
        self,
        step: str,
        made_from: Mapping[str, Any],
        action: Callable[[Path], Counts | None],
        room: float = 0,
        total: int = 1,
    ) -> Counts:
        """Do ``step`` unless it is done already, and return its counts.

        Args:
            step: its name.
            made_from: all that decides what it writes (checksums of inputs, options, versions), as
                JSON has it: lists, no tuples.
            action: writes files into a folder, and may return counts; the files then move to the
                same paths in the data folder.
            room: the bytes that it will write, roughly.
            total: lines, for the report of beginning and end.

        Raises:
            UserError: the disk has less room.
        """
        report(step, 0, total)
        if not self._done(step, made_from):
            check_room(self.folder, int(room), f"step {step!r}")
            with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=self.folder) as work:
                self._finish(step, made_from, action(Path(work)) or {}, Path(work))
        report(step, total, total)
        result: Counts = self.content["steps"][step]["counts"]
        return result

    def _done(self, step: str, made_from: Mapping[str, Any]) -> bool:
        """Whether a step was made from these inputs and its files have the recorded sizes."""
        record = self.content["steps"].get(step)
        if record is None or record["made_from"] != made_from:
            return False
        for name, entry in record["files"].items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                return False
        return True

    def _finish(
        self, step: str, made_from: Mapping[str, Any], counts: Counts, work: Path
    ) -> None:
        """Move the files of a step to their places and record them."""
        paths = sorted(path for path in work.rglob("*") if path.is_file())
        files = {
            str(path.relative_to(work)): {"bytes": path.stat().st_size, "sha256": checksum}
            for path, checksum in sha256_of_all(paths, self.workers).items()
        }
        # The old record goes first: killed while files are moved, the step counts as not done.
        stale = self.content["steps"].pop(step, {"files": {}})
        write_json(self.folder / MANIFEST, self.content)
        for file in stale["files"]:
            (self.folder / file).unlink(missing_ok=True)
        for file in files:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / file, self.folder / file)
        self.content["steps"][step] = {"made_from": made_from, "counts": counts, "files": files}
        write_json(self.folder / MANIFEST, self.content)

    def complete(self, **facts: Any) -> None:
        """All steps are done; ``facts``: further keys of the manifest."""
        content = {**self.content, **facts, "state": "complete"}
        path = self.folder / MANIFEST
        if not path.exists() or read_json(path) != content:
            write_json(path, content)


@contextlib.contextmanager
def open_manifest(
    data: Path, heading: Mapping[str, Any], workers: int = 1
) -> Iterator[Manifest]:
    """Make or reopen the data folder, for one process at a time.

    ``heading``: the manifest's keys above its steps; ``workers``: processes for the steps.

    Raises:
        UserError: the folder holds something of another form, cannot be written, the disk is full,
            or another process is at work.
    """
    content = {"folder_version": FOLDER_VERSION, "state": "unfinished", **heading, "steps": {}}
    try:
        with only_one(data):
            if (data / MANIFEST).exists():
                before = read_manifest(data)
                if before["form"] != heading["form"]:
                    form = CONTENT[before["form"]]
                    raise UserError(f"{data} holds {form}: name another --out")
                content["steps"] = before["steps"]
            yield Manifest(data, content, workers)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or data}: {error.strerror or error}"
        ) from error

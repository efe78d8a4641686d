"""manifest.json of a data folder: what each step was made from, its counts, and its files."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_room, read_json, sha256_of_all, write_json
from fairseq_mhe.common.folder_version import FOLDER_VERSION, check_folder_version
from fairseq_mhe.common.steps import WORK_PREFIX, only_one

MANIFEST = "manifest.json"
_PREPARE_AGAIN = "prepare it again, into a new folder"
#: The "form" of a manifest; that of parallel text has none.
TEXT, TASK = "text", "task"
#: The heading of a folder of files as they are published.
DOWNLOADED = {"form": "downloaded"}
#: Form -> what the folder holds.
CONTENT = {
    None: "parallel text",
    TEXT: "running text",
    TASK: "a task",
    "downloaded": "downloaded text",
}

Counts = dict[str, Any]


def read_manifest(data: Path) -> dict[str, Any]:
    """The manifest of a prepared data folder.

    Raises:
        UserError: the manifest is missing, damaged, of another version, or names files outside of
            the folder, which a repeated step would delete.
    """
    path = data / MANIFEST
    if not path.exists():
        raise UserError(f"{path} is missing; make {data} with fairseq-mhe prepare")
    manifest: dict[str, Any] = read_json(path)
    check_folder_version(data, manifest, _PREPARE_AGAIN)
    for step in manifest["steps"].values():
        for name in map(Path, step["files"]):
            if name.is_absolute() or ".." in name.parts:
                raise UserError(f"{path} names {name}, outside of its folder: {_PREPARE_AGAIN}")
    return manifest


class Manifest:
    """The steps of a data folder under construction; open it with `open_manifest`.

    ``content["steps"]`` has of each finished step what it was made from, its counts, and its files'
    sizes and SHA-256.
    """

    def __init__(self, folder: Path, heading: Mapping[str, Any], workers: int = 1) -> None:
        """``heading``: the manifest's keys above its steps; ``workers``: cores that hash files.

        Raises:
            UserError: the folder holds something of another form, which would be overwritten.
        """
        self.folder = folder
        self._workers = workers
        steps: dict[str, Any] = {}
        if (folder / MANIFEST).exists():
            before = read_manifest(folder)
            form, steps = before.get("form"), before["steps"]
            if form != heading.get("form"):
                raise UserError(f"{folder} holds {CONTENT.get(form, form)}: name another --out")
        version = {"folder_version": FOLDER_VERSION}
        self.content = {**version, "state": "unfinished", **heading, "steps": steps}

    def checksums(self, step: str, folder: str = "") -> dict[str, str]:
        """File -> SHA-256 of what ``step`` has made in ``folder``."""
        return {name: entry["sha256"] for name, entry in self._files(step, folder).items()}

    def size(self, step: str, folder: str = "") -> int:
        """The bytes of what ``step`` has made in ``folder``."""
        return sum(entry["bytes"] for entry in self._files(step, folder).values())

    def _files(self, step: str, folder: str = "") -> dict[str, dict[str, Any]]:
        files = self.content["steps"][step]["files"]
        return {name: entry for name, entry in files.items() if name.startswith(folder)}

    def run(
        self,
        step: str,
        made_from: Mapping[str, Any],
        action: Callable[[Path], Counts],
        room: float = 0,
    ) -> Counts:
        """Do ``step`` unless it is done already, and return its counts.

        Args:
            step: its name.
            made_from: everything (inputs' checksums, options, tools' versions) that decides what
                it writes, as JSON has it: lists, no tuples.
            action: writes files under the folder that it is given, which move to the same paths in
                the data folder when it returns the step's counts.
            room: the bytes that it will write, roughly.

        Raises:
            UserError: the disk has less room.
        """
        if not self._done(step, made_from):
            check_room(self.folder, int(room), f"step {step!r}")
            with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=self.folder) as work:
                counts = action(Path(work))
                self._finish(step, made_from, counts, Path(work))
        result: Counts = self.content["steps"][step]["counts"]
        return result

    def _done(self, step: str, made_from: Mapping[str, Any]) -> bool:
        """Whether a step was made from these inputs and its files have the recorded sizes."""
        record = self.content["steps"].get(step)
        if record is None or record["made_from"] != made_from:
            return False
        for name, entry in self._files(step).items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                return False
        return True

    def _finish(self, step: str, made_from: Mapping[str, Any], counts: Counts, work: Path) -> None:
        """Move the files of a step to their places and record them."""
        checksums = sha256_of_all(
            [path for path in work.rglob("*") if path.is_file()], self._workers
        )
        files = {
            str(path.relative_to(work)): {"bytes": path.stat().st_size, "sha256": checksum}
            for path, checksum in sorted(checksums.items())
        }
        # The old record goes first: killed while files are moved, the step counts as not done.
        stale = self.content["steps"].pop(step, {"files": {}})
        self._write("unfinished")
        for file in stale["files"]:
            (self.folder / file).unlink(missing_ok=True)
        for file in files:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / file, self.folder / file)
        self.content["steps"][step] = {"made_from": made_from, "counts": counts, "files": files}
        self._write("unfinished")

    def complete(self, **facts: Any) -> None:
        """All steps are done; ``facts``: further keys of the manifest."""
        self.content |= facts
        self._write("complete")

    def _write(self, state: str) -> None:
        """Write the manifest, unless the file is the same already."""
        self.content["state"] = state
        path = self.folder / MANIFEST
        if not path.exists() or read_manifest(self.folder) != self.content:
            write_json(path, self.content)


@contextlib.contextmanager
def open_manifest(data: Path, heading: Mapping[str, Any], workers: int = 1) -> Iterator[Manifest]:
    """Make or reopen the data folder, for one process at a time; ``workers`` as `Manifest`'s.

    Raises:
        UserError: the folder cannot be written, the disk is full, or another process is at work.
    """
    try:
        with only_one(data):
            yield Manifest(data, heading, workers)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or data}: {error.strerror or error}"
        ) from error

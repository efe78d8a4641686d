"""manifest.json of a data folder: what each step was made from, its counts, and its files."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_room, read_json, sha256_of_all, write_json
from fairseq_mhe.common.folder_version import FOLDER_VERSION, check_folder_version
from fairseq_mhe.common.steps import WORK_PREFIX, Steps, only_one

MANIFEST = "manifest.json"
_PREPARE_AGAIN = "prepare it again, into a new folder"
#: What a manifest says in "form" -> what its folder holds.
_HELD = {None: "parallel text", "text": "running text", "task": "a task"}

Counts = dict[str, Any]


def read_manifest(data: Path) -> dict[str, Any]:
    """The manifest of a prepared data folder.

    Raises:
        UserError: it is missing, damaged, of another version, or names files outside of the folder,
            which a step that is done again would delete.
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


def check_complete(data: Path, manifest: Mapping[str, Any]) -> None:
    """Raises UserError for a data folder whose preparation was stopped."""
    if manifest["state"] != "complete":
        raise UserError(
            f"{data} is not finished: prepare it again, which goes on from where it was"
        )


class Manifest(Steps):
    """The steps of a data folder under construction; open it with `open_manifest`.

    ``content["steps"]`` says of each finished step what it was made from, its counts, and its
    files' sizes and sha256.
    """

    def __init__(self, folder: Path, heading: Mapping[str, Any], workers: int = 1) -> None:
        """``heading``: the manifest's keys above its steps; ``workers``: cores that hash files.

        Raises:
            UserError: the folder holds something of another form, which would be written over.
        """
        super().__init__(folder)
        self._workers = workers
        there = (folder / MANIFEST).exists()
        found = read_manifest(folder) if there else {**heading, "steps": {}}
        if (held := found.get("form")) != heading.get("form"):
            raise UserError(f"{folder} holds {_HELD.get(held, held)}: name another --out")
        steps = found["steps"]
        version = {"folder_version": FOLDER_VERSION}
        self.content = {**version, "state": "unfinished", **heading, "steps": steps}

    def status(self) -> dict[str, Any]:
        """The manifest."""
        return self.content

    def files(self, step: str, fact: str, folder: str = "") -> dict[str, Any]:
        """File -> ``fact`` ("sha256" or "bytes") of what ``step`` has made in ``folder``."""
        files = self.content["steps"][step]["files"]
        return {name: entry[fact] for name, entry in files.items() if name.startswith(folder)}

    def run(
        self,
        step: str,
        made_from: Mapping[str, Any],
        action: Callable[[Path], Counts],
        room: float = 0,
        outputs: Sequence[Path] = (),
    ) -> Counts:
        """Do ``step`` unless it is done already, and return its counts.

        ``action`` writes files under the folder it is given, with the paths they shall have in the
        data folder; they are moved there, and recorded, when it returns. ``made_from`` is
        everything (inputs' checksums, options, tools' versions) that decides what it writes, as
        JSON has it: lists, no tuples. ``room``: bytes that it will write, roughly. ``outputs``:
        without these files it is not done, where other names than before may be asked for.

        Raises:
            UserError: the disk has less room.
        """
        with ExitStack() as stack:

            def work_apart() -> tuple[Path, Counts]:
                check_room(self.folder, int(room), f"step {step!r}")
                folder = tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=self.folder)
                work = Path(stack.enter_context(folder))
                return work, action(work)

            self.perform(step, made_from, outputs, work_apart)
        return self.content["steps"][step]["counts"]

    def done(self, name: str, inputs: Mapping[str, Any], outputs: Sequence[Path] = ()) -> bool:
        """Whether a step was made from these inputs and its files have the recorded sizes."""
        record = self.content["steps"].get(name)
        if record is None or record.get("made_from") != inputs:
            return False
        if not all(path.exists() for path in outputs):
            return False
        for file, size in self.files(name, "bytes").items():
            path = self.folder / file
            if not path.is_file() or path.stat().st_size != size:
                return False
        return True

    def begin(self, name: str) -> None:
        """Nothing is noted before the first file moves."""

    def fail(self, name: str, reason: str) -> None:
        """Nothing is noted: the record of an earlier result stays as valid as it was."""

    def finish(
        self, name: str, inputs: Mapping[str, Any], seconds: float, made: Any = None
    ) -> None:
        """Move the files of a step to their places and record them."""
        work, counts = made
        found = sha256_of_all([path for path in work.rglob("*") if path.is_file()], self._workers)
        files = {
            str(path.relative_to(work)): {"bytes": path.stat().st_size, "sha256": checksum}
            for path, checksum in sorted(found.items())
        }
        # The old record goes first: killed while files are moved, the step counts as not done.
        stale = self.content["steps"].pop(name, {"files": {}})
        self.write("unfinished")
        for file in stale["files"]:
            (self.folder / file).unlink(missing_ok=True)
        for file in files:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / file, self.folder / file)
        self.content["steps"][name] = {"made_from": inputs, "counts": counts, "files": files}
        self.write("unfinished")

    def write(self, state: str) -> None:
        """Write the manifest, unless the file says the same already."""
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

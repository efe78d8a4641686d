"""The manifest.json of a data folder records the inputs, counts and files of each step."""

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError, reason_of
from fairseq_mhe.common.files import (
    FOLDER_VERSION,
    WORK_PREFIX,
    check_folder_version,
    lock_folder,
    read_json,
    sha256_of_all,
    write_json,
)
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores, installed

MANIFEST = "manifest.json"
#: The values of "form" in a manifest: what the folder holds.
PARALLEL, TEXT, TASK, DOWNLOADED = "parallel", "text", "task", "downloaded"
#: The scripts that make folders of a form; `fairseq-mhe prepare` makes those of parallel text.
_MAKERS = {TEXT: "data-prep/text.sh", TASK: "data-prep/glue.sh, superglue.sh or squad.sh"}
#: Bytes up to which all files of a folder are compared at each opening, which takes under a second.
ALWAYS_COMPARED = 300 * 10**6
#: Times of the files of a larger folder when they were last compared; it is in no manifest.
_COMPARED = ".compared.json"
#: Packages on whose versions the output of the steps depends.
_PACKAGES = ("ve-fairseq", "fairseq", "sacremoses", "subword-nmt", "sentencepiece")

Counts = dict[str, Any]
Facts = Mapping[str, Any]


def read_manifest(data: Path, form: str = "") -> dict[str, Any]:
    """Read a manifest; UserError if it is missing, damaged, or of another version or form."""
    path = data / MANIFEST
    if not path.exists():
        maker = _MAKERS.get(form, "fairseq-mhe prepare")
        raise UserError(f"{path} is missing; make {data} with {maker}")
    manifest: dict[str, Any] = read_json(path)
    check_folder_version(data, manifest, "prepare it again, into a new folder")
    if form and manifest["form"] != form:
        content = f"{manifest['form']} data, not {form} data"
        raise UserError(f"{data} holds {content}: give another folder")
    if "tokenizer" in manifest:
        manifest["text_spec"] = _text_spec_of_0_3(manifest)
    return manifest


def _text_spec_of_0_3(manifest: Facts) -> Facts:
    """Return the text_spec of a folder of version 0.2 or 0.3, which stored it in two places."""
    names = ("source_lang", "target_lang", "tokenizer", "subword")
    spec = {name: manifest[name] for name in names}
    for name in ("punctuation", "lowercase"):
        spec[name] = manifest["options"].get(name, False)
    return spec


def recorded_files(manifest: Facts) -> dict[str, Facts]:
    """Return every file that the steps of a data folder wrote -> its "bytes" and "sha256"."""
    files: dict[str, Facts] = {}
    for step in manifest["steps"].values():
        files |= step["files"]
    return files


def file_hashes(manifest: Facts) -> dict[str, str]:
    """Return every file that the steps of a data folder wrote -> its SHA-256."""
    files = recorded_files(manifest)
    return {name: facts["sha256"] for name, facts in files.items()}


def damaged_files(data: Path, files: Mapping[str, Facts]) -> dict[str, str]:
    """Return what is wrong with each of ``files`` that is not as the manifest records it.

    It compares sizes first, then checksums. If the files together are large, it reads only those
    whose time has changed since the last comparison.
    """
    problems = {}
    times = {}
    for name, facts in files.items():
        path = data / name
        if not path.is_file():
            problems[name] = "is missing"
        elif (size := path.stat().st_size) != facts["bytes"]:
            problems[name] = f"has {size:,} bytes instead of {facts['bytes']:,}"
        else:
            # The second time also differs after a copy, and cannot be set.
            times[name] = [path.stat().st_mtime_ns, path.stat().st_ctime_ns]
    small = sum(facts["bytes"] for facts in files.values()) <= ALWAYS_COMPARED
    compared = {} if small else _last_compared(data)
    names = [name for name in times if times[name] != compared.get(name)]
    hashes = sha256_of_all([data / name for name in names], cores())
    for name in names:
        if hashes[data / name] != files[name]["sha256"]:
            problems[name] = f"has another checksum than in {MANIFEST}"
            del times[name]
    if names and not small:
        with contextlib.suppress(UserError):  # someone else's folder may be read-only
            write_json(data / _COMPARED, {**compared, **times})
    return problems


def _last_compared(data: Path) -> dict[str, Any]:
    """Return file -> its times when its checksum was last right."""
    try:
        return read_json(data / _COMPARED)
    except UserError:
        return {}


@dataclass
class Manifest:
    """The steps of a data folder under construction; open it with `open_manifest`."""

    folder: Path
    content: dict[str, Any]
    workers: int

    def checksums(self, names: Iterable[str]) -> dict[str, str]:
        """Return file -> SHA-256 for files that finished steps wrote."""
        hashes = file_hashes(self.content)
        return {name: hashes[name] for name in names}

    def run(self, step: str, made_from: Facts, action: Callable[[Path], Any]) -> Counts:
        """Run ``action`` unless the step was done before with equal inputs; return its counts.

        ``made_from``: all inputs that determine the output, as JSON types. ``action`` writes into a
        temporary folder; its files then move to the same paths in the data folder.
        """
        made_from = {**made_from, "versions": installed(_PACKAGES)}
        if not self._done(step, made_from):
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=self.folder) as name:
                work = Path(name)
                self._finish(step, made_from, action(work) or {}, work)
            say(f"{step}: {time.monotonic() - begin:.0f} s")
        counts: Counts = self.content["steps"][step]["counts"]
        return counts

    def _done(self, step: str, made_from: Facts) -> bool:
        """Whether a step was made from these inputs and its files are as recorded."""
        record = self.content["steps"].get(step, {})
        if record.get("made_from") != made_from:
            return False
        return not damaged_files(self.folder, record["files"])

    def _finish(self, step: str, made_from: Facts, counts: Counts, work: Path) -> None:
        """Move the files of a step into the data folder and record them."""
        paths = sorted(path for path in work.rglob("*") if path.is_file())
        files = {}
        for path, checksum in sha256_of_all(paths, self.workers).items():
            facts = {"bytes": path.stat().st_size, "sha256": checksum}
            files[str(path.relative_to(work))] = facts
        # Without the old record the step counts as not done if a kill interrupts the moves.
        steps = self.content["steps"]
        old_record = steps.pop(step, {"files": {}})
        write_json(self.folder / MANIFEST, self.content)
        for file in old_record["files"]:
            (self.folder / file).unlink(missing_ok=True)
        for file in files:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / file, self.folder / file)
        steps[step] = {"made_from": made_from, "counts": counts, "files": files}
        write_json(self.folder / MANIFEST, self.content)

    def complete(self, **facts: Any) -> None:
        """Record that all steps are done; ``facts``: further keys of the manifest."""
        path = self.folder / MANIFEST
        content = {**self.content, **facts, "state": "complete"}
        if read_json(path) != content:
            write_json(path, content)


@contextlib.contextmanager
def open_manifest(
    data: Path, form: str, facts: Facts, workers: int = 1
) -> Iterator[Manifest]:
    """Make or reopen a data folder of a ``form``, and lock it against other processes.

    ``facts``: further keys of the manifest; they hold no path, time or machine, so that equal data
    have equal manifests. Raises UserError if the folder has another form, is in use or cannot be
    written, or if code in the ``with`` block cannot read a file.
    """
    packages = installed(("fairseq-mhe", *_PACKAGES))
    versions = {"python": platform.python_version(), **packages}
    state = {"folder_version": FOLDER_VERSION, "state": "unfinished", "form": form}
    content = {**state, **facts, "versions": versions, "steps": {}}
    try:
        with lock_folder(data):
            if (data / MANIFEST).exists():
                content["steps"] = read_manifest(data, form)["steps"]
            yield Manifest(data, content, workers)
    except OSError as error:
        # The error of a copy has two names, of which the second is the output's.
        name = error.filename2 or error.filename or data
        raise UserError(f"cannot read or write {name}: {reason_of(error)}") from error

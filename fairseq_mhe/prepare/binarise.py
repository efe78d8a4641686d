"""The form that fairseq-train reads, made by fairseq-preprocess with one dictionary for both languages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path


def run_logged(command: list[str], cwd: Path, log: Path) -> None:
    """Run ``command`` in ``cwd`` with everything it prints in ``log``.

    Raises:
        UserError: it fails; its last line and the log's path are told.
    """
    for left in log.parent.glob(
        f".{log.name}.*.part"
    ):  # by a run that was killed; one process at a time works here
        left.unlink(missing_ok=True)
    with atomic_path(log) as part, part.open("wb") as stream:
        done = subprocess.run(
            command, cwd=cwd, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next(
            (line.strip() for line in reversed(lines) if line.strip()),
            f"exit status {done.returncode}",
        )
        raise UserError(f"fairseq-preprocess failed: {last} (all it said: {log})")


def binarise(subwords: Path, out: Path, langs: tuple[str, str], workers: int, log: Path) -> None:
    """Binarise train, valid and test of ``subwords`` into the folder ``out``, with a dictionary joined over ``langs``.

    Raises:
        UserError: fairseq-preprocess fails.
    """
    options = ["--source-lang", langs[0], "--target-lang", langs[1], "--joined-dictionary"]
    # Relative names: fairseq splits prefixes at commas, and a user's folder may have one in its
    # name.
    prefixes = ["--trainpref", "train", "--validpref", "valid", "--testpref", "test"]
    place = ["--destdir", str(out.resolve()), "--workers", str(workers)]
    run_logged(
        [sys.executable, "-m", "fairseq_mhe.prepare.preprocess", *options, *prefixes, *place],
        subwords,
        log,
    )
    (out / "preprocess.log").unlink(
        missing_ok=True
    )  # a part of the log, with this run's paths in it

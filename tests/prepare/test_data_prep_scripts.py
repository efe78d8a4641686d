"""The scripts of data-prep/ prepare folders; tests/scripts has the tests of their --help."""

import os
import subprocess
import sys
from pathlib import Path

from fairseq_mhe.prepare.corpora.command import CORPORA
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures.task_files import put_task
from tests.prepare.conftest import LINES

GLUE = Path(__file__).resolve().parents[2] / "data-prep" / "glue.sh"


def test_a_script_prepares_a_folder_with_a_space_in_its_name(
    tmp_path: Path, language_text: Path
) -> None:
    """Standard error has only our own lines, none of fairseq's."""
    data, files = tmp_path / "my data", put_task(tmp_path / "in", "rte", LINES, 4)
    command = ["bash", GLUE, "rte", "--folder", files, "--text", language_text, "--out", data]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{data}\n"), done.stderr
    begins = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert begins == ["binarise", "rte train", "rte valid"], done.stderr
    assert read_manifest(data)["lines"] == {"train": 4, "valid": 4}


def test_each_corpus_has_a_script() -> None:
    """own_corpus.sh is `fairseq-mhe prepare`."""
    scripts = {script.stem for script in GLUE.parent.glob("*.sh")}
    assert scripts == {*CORPORA, "own_corpus"}

"""Closed standard streams and links that lead to themselves are one line, not a traceback."""

import subprocess
from pathlib import Path

import pytest

from tests.fixtures.processes import PYTHON
from tests.fixtures.refusals import Refused
from tests.fixtures.small_runs import SMALL, run_of
from tests.fixtures.text import write_parallel


def run(closed: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of ours in a new Python, without the streams that bash closes."""
    line = [PYTHON, "-m", "fairseq_mhe_cli", *words]
    shell = ["bash", "-c", f'exec "$@" {closed}', "bash", *line]
    return subprocess.run(shell, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("closed", "status", "error"),
    [
        (">&-", 2, b"fairseq-mhe recipe: error: standard output is closed: "),
        ("<&-", 0, b""),
        ("2>&-", 0, b""),
        ("<&- >&- 2>&-", 2, b""),
    ],
)
def test_closed_streams_are_no_traceback(closed: str, status: int, error: bytes) -> None:
    done = run(closed, "recipe", "tiny")
    assert (done.returncode, done.stderr.count(b"\n")) == (status, bool(error)), done.stderr
    assert done.stderr.startswith(error)
    assert bool(done.stdout) == (status == 0)


def test_closed_standard_input_is_no_text() -> None:
    run_folder, data = str(run_of("mha")), str(SMALL / "data")
    done = run("<&-", "translate", run_folder, "--data", data, "--cpu")
    assert done.returncode == 2
    message = b"fairseq-mhe translate: error: standard input is closed: "
    assert done.stderr.splitlines()[-1].startswith(message)


@pytest.mark.parametrize(
    "words",
    [
        ["prepare", "--train", "x", "--hold-out=9", "--source-lang=en", "--target-lang=de"],
        ["train", "tiny", "mha", "--cpu", "--data", str(SMALL / "data")],
        ["run-table", "--rows", "tiny", "--cpu", "--data", str(SMALL / "data")],
    ],
    ids=lambda words: words[0],
)
def test_a_loop_of_links_is_one_line(words: list[str], tmp_path: Path, refused: Refused) -> None:
    write_parallel(tmp_path / "x", [("one", "eins")] * 9)
    (tmp_path / "loop").symlink_to("loop")
    words = [str(tmp_path / "x") if word == "x" else word for word in words]
    assert "loop" in refused(*words, "--out", tmp_path / "loop" / "out").lower()


@pytest.mark.parametrize("words", [["evaluate"], ["train", "tiny", "mha", "--out", "o", "--data"]])
def test_a_loop_in_place_of_an_input_is_one_line(
    words: list[str], tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert "loop" in refused(*words, tmp_path / "loop").lower()

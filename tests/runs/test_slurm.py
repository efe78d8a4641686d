"""Cells as SLURM jobs: the arguments of sbatch, and the batch script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.cpu import has_fast_bf16
from fairseq_mhe.runs.job import read_job
from tests.fixtures.refusals import Refused
from tests.fixtures.small_runs import SMALL

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

#: A stub of sbatch, which writes its arguments to a file, one a line, and prints a job number.
SBATCH = """#!/usr/bin/env bash
printf '%s\\n' "$@" >"$SUBMITTED"
echo "4711;cluster"
"""


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Return the file into which the stub of sbatch writes its arguments."""
    stub = tmp_path / "stubs" / "sbatch"
    stub.parent.mkdir()
    stub.write_text(SBATCH)
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SUBMITTED", str(tmp_path / "submitted"))
    return tmp_path / "submitted"


def submit(out: Path, *words: str) -> int:
    cells = ["--rows", "tiny", "--kinds", "mha,mhe_mul", "--seeds", "1,2", "--updates", "3"]
    folders = ["--data", str(SMALL / "data"), "--out", str(out)]
    return cli.main(["run-table", *folders, *cells, "--slurm", *words])


def test_an_array_of_cells_is_submitted(tmp_path: Path, submitted: Path, capsys: Capture) -> None:
    out = tmp_path / "the %j out"
    options = "--slurm-parallel 2 --max-tokens 512 --gpus 2"
    options += " --slurm-option partition=long --slurm-option exclusive"
    assert submit(out, *options.split()) == 0
    words = submitted.read_text().splitlines()
    assert words == [
        *("--parsable", "--array=0-3%2", f"--output={tmp_path}/the %%j out/slurm/%A_%a.log"),
        *("--time=24:00:00", "--cpus-per-task=8", "--gpus-per-node=2"),
        *("--partition=long", "--exclusive", str(out / "slurm" / "job.sh")),
    ]
    screen = "".join(capsys.readouterr())
    assert f"tiny-mhe_mul-seed2: job 4711_3, output {out}/slurm/4711_3.log" in screen
    assert not list(tmp_path.rglob("train.log")), "nothing is trained here"
    assert not list(out.rglob("config.json")), "the node that trains decides on its precision"
    assert submit(tmp_path / "out", "--processes", "1") == 0
    assert "--gpus" not in submitted.read_text()


@pytest.mark.parametrize(("restarts", "expected"), [("0", "requeue 47_1\n"), ("100", "")])
def test_a_job_requeues_itself_when_its_time_is_up(
    tmp_path: Path, submitted: Path, monkeypatch: Patch, restarts: str, expected: str
) -> None:
    """SLURM sends USR1 to the script, which requeues its job a hundred times at most."""
    program, scontrol = (submitted.with_name("stubs") / name for name in ("a program", "scontrol"))
    program.write_text("#!/bin/sh\nsleep 0.3; kill -USR1 $PPID; exec sleep 3")
    scontrol.write_text('#!/bin/sh\necho "$@"\n')
    for stub in (program, scontrol):
        stub.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert submit(tmp_path) == 0
    environment = {"SLURM_ARRAY_JOB_ID": "47", "SLURM_ARRAY_TASK_ID": "1"}
    environment |= {"SLURM_RESTART_COUNT": restarts, "PATH": os.environ["PATH"]}
    line = ["bash", str(tmp_path / "slurm" / "job.sh")]
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run(line, env=environment, stdout=log, check=False, timeout=30)
    assert (tmp_path / "log").read_text() == expected
    assert done.returncode


def test_a_job_by_hand_trains_the_cell_of_its_number(
    tmp_path: Path, submitted: Path, monkeypatch: Patch
) -> None:
    """The cell has the options of the table and its machine's precision, and writes no table."""
    out = tmp_path / "out"
    size = ["--batch-tokens", "512", "--max-tokens", "256", "--cpu", "--subset", "valid"]
    other = not has_fast_bf16()  # as if the submitting machine differed from the job's
    with monkeypatch.context() as patch:
        patch.setattr("fairseq_mhe.runs.devices.has_fast_bf16", lambda: other)
        assert submit(out, *size) == 0
    script = str(out / "slurm" / "job.sh")
    assert [subprocess.run(["bash", script, n]).returncode for n in ("2", "4")] == [0, 2]
    run = read_job(out / "tiny-mhe_mul-seed1")
    training = run.training
    assert training.precision == ("float32" if other else "bf16")
    assert (run.kind, training.batch_tokens) == ("mhe_mul", 512)
    assert (run.folder / "valid" / "scores.json").is_file()
    assert not list(out.glob("table.*"))
    assert not (out / "tiny-mha-seed1" / "metrics.json").exists()


def test_failed_submissions_are_one_line_errors(
    tmp_path: Path, submitted: Path, refused: Refused, monkeypatch: Patch
) -> None:
    """So is --slurm-... without --slurm, which would train the table on the login machine."""
    refusing = "#!/bin/sh\necho 'invalid partition\nspecified' >&2\nexit 1\n"
    (tmp_path / "stubs" / "sbatch").write_text(refusing)
    line = ["run-table", "--data", SMALL / "data", "--out", tmp_path / "out", "--rows", "tiny"]
    assert "invalid partition specified" in refused(*line, "--slurm")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "--slurm needs sbatch on the PATH" in refused(*line, "--slurm")
    assert "--slurm" in refused(*line, "--slurm-option", "partition=gpu")

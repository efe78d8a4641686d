"""Cells as SLURM jobs: the batch file that submitit writes,"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs import slurm
from fairseq_mhe.runs.job import read_job
from tests.fixtures.small_runs import MADE

#: What stands for SLURM: sbatch keeps the batch file and names a job.
STUB = """#!/usr/bin/env bash
cp "$1" "$SUBMITTED"
echo "Submitted batch job 4711"
"""


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stub puts the batch file."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name in ("sbatch", "srun"):
        (stubs / name).write_text(STUB)
        (stubs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{stubs}:{os.environ['PATH']}")
    monkeypatch.setenv("SUBMITTED", str(tmp_path / "submitted.sh"))
    return tmp_path / "submitted.sh"


def submit(out: Path, *words: str) -> int:
    cells = ["--rows", "tiny", "--kinds", "mha,mhe_mul", "--seeds", "1,2", "--updates", "3"]
    places = ["--data", str(MADE / "data"), "--out", str(out)]
    return cli.main(["run-table", *places, *cells, "--slurm", *words])


def test_the_batch_file_is_an_array_over_the_cells(
    tmp_path: Path, submitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--slurm-hours 12 --slurm-cpus 4 --slurm-parallel 2 --max-tokens 512 --gpus 2"
    options += " --slurm-option partition=long --slurm-option account=mine"
    assert submit(tmp_path / "the out", *options.split()) == 0
    lines = submitted.read_text().split("\n")
    for line in (
        "#SBATCH --array=0-3%2",
        "#SBATCH --time=720",
        "#SBATCH --cpus-per-task=4",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --partition=long",
        "#SBATCH --account=mine",
    ):
        assert line in lines
    assert any(line.startswith("srun ") and sys.executable in line for line in lines)
    assert subprocess.run(["bash", "-n", submitted], check=False).returncode == 0
    screen = "".join(capsys.readouterr())
    assert "tiny: 3 updates, 1,024 tokens an update = 512 tokens x 2 devices" in screen
    assert "tiny-mhe_mul-seed2: job 4711_3" in screen
    assert "4 of 4 cells submitted" in screen
    assert not list(tmp_path.rglob("train.log")), "nothing is trained here"


def test_by_default_a_job_asks_for_a_gpu_and_on_the_cpu_for_none(
    tmp_path: Path, submitted: Path
) -> None:
    assert submit(tmp_path / "out") == 0
    lines = submitted.read_text().split("\n")
    for request in ("--cpus-per-task=8", "--gpus-per-node=1", "--time=1440"):
        assert f"#SBATCH {request}" in lines
    for words in (["--processes", "1"], ["--cpu"]):
        assert submit(tmp_path / "out", *words) == 0
        assert "--gpus" not in submitted.read_text()


def test_a_job_is_done_by_its_number(
    tmp_path: Path, submitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its precision and batch are those of the submission; the table is left to who asks for it."""
    out = tmp_path / "out"
    size = ["--batch-tokens", "512", "--max-tokens", "256", "--cpu", "--precision", "bf16"]
    assert submit(out, *size, "--subset", "valid") == 0
    assert submit(out, *size, "--subset", "valid") == 0
    jobs = json.loads((out / "jobs.json").read_text())
    names = [f"tiny-{kind}-seed{seed}" for kind in ("mha", "mhe_mul") for seed in (1, 2)]
    assert [job["name"] for job in jobs] == 2 * names, "jobs of an earlier submission stay"
    assert submitted.read_text().count("--array=0-3") == 1
    assert cli.main(["run-jobs", str(out / "jobs.json"), "2"]) == 0
    run = read_job(out / "tiny-mhe_mul-seed1")
    assert (run.training.precision, run.training.batch_tokens, run.kind) == (
        "bf16",
        512,
        "mhe_mul",
    )
    assert (run.subset("valid") / "scores.json").is_file()
    assert not list(out.glob("table.*"))
    assert not (out / "tiny-mha-seed1" / "config.json").exists()
    capsys.readouterr()
    assert cli.main(["run-jobs", str(out / "jobs.json"), "8"]) == 2
    assert "has 8 jobs, numbered from 0: no 8" in capsys.readouterr().err


def test_how_to_submit_is_refused_where_nothing_is_submitted(tmp_path: Path) -> None:
    """Else a table would be trained on the machine where jobs are submitted."""
    words = ["--data", str(tmp_path), "--out", str(tmp_path), "--slurm-option", "partition=gpu"]
    args = cli.build_parser("run-table").parse_args(["run-table", *words])
    with pytest.raises(UserError, match="give --slurm too, or leave them out"):
        slurm.asked_for(args)
    args.finished_only = True
    assert not slurm.asked_for(args)


def test_a_job_that_runs_out_of_time_is_submitted_again() -> None:
    job = slurm.CellJob(Path("jobs.json"), 0)
    assert job.checkpoint().function is job


def test_without_slurm_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit(tmp_path / "out") == 2
    assert 'SLURM refuses the jobs: Could not detect "srun"' in capsys.readouterr().err


def test_what_sbatch_refuses_is_one_line(
    tmp_path: Path, submitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stubs" / "sbatch").write_text(
        "#!/bin/sh\necho 'invalid partition\nspecified' >&2\nexit 1\n"
    )
    assert submit(tmp_path / "out") == 2
    error = (
        capsys.readouterr().err.strip().split("\n")[-1]
    )  # submitit shows sbatch's words, too
    told = "SLURM refuses the jobs: invalid partition specified"
    assert error == f"fairseq-mhe run-table: error: {told}"

"""``--slurm``: train the jobs of a grid as an array of SLURM jobs."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.arguments import integer, option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_text
from fairseq_mhe.runs.devices import DeviceOptions

#: The batch script; `submit` puts the folder in place of FOLDER and each job's command in place of
#: JOBS. Two minutes before its time is up, a job requeues itself; it resumes later. Bash ignores
#: Ctrl-C in a process behind "&", so the script ends it. By hand, job N is bash OUT/slurm/job.sh N.
_SCRIPT = """#!/usr/bin/env bash
#SBATCH --job-name=fairseq-mhe --ntasks=1 --requeue --open-mode=append --signal=B:USR1@120
job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
trap '((${SLURM_RESTART_COUNT:-0} < 100)) && scontrol requeue "$job"' USR1
trap 'kill "$training" 2>/dev/null; wait; exit 130' INT TERM
cd FOLDER || exit
case "${1:-$SLURM_ARRAY_TASK_ID}" in
JOBS
*) echo "usage: bash $0 N, with the number of a job in this file" >&2; exit 2 ;;
esac
"$@" &
training=$!
wait "$training"
"""


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """How a table submits its jobs, or shows only the finished ones."""

    slurm: bool = option(False, "submit an array of SLURM jobs, one a model, and return")
    slurm_dry_run: bool = option(
        False, "write OUT/slurm/job.sh and print the sbatch command, but submit nothing"
    )
    slurm_parallel: int | None = integer(
        None, "number of SLURM jobs that may run at the same time (default: 256)"
    )
    slurm_option: Sequence[str] | None = option(
        None,
        "another option of sbatch (default: time=24:00:00 and cpus-per-task=8)",
        action="append",
        metavar="NAME=VALUE",
    )
    finished_only: bool = option(
        False, "train nothing; write the table of the finished runs"
    )
    no_table: bool = option(
        False, "train and score, but write no table, as a SLURM job does"
    )

    @property
    def submits(self) -> bool:
        """Whether to submit jobs; raises UserError for options that contradict each other."""
        if (self.slurm or self.slurm_dry_run) and self.finished_only:
            raise UserError(
                "--finished-only trains nothing, --slurm does: leave one of them out"
            )
        # A job of SLURM is the command that submitted it, with --no-table and its cell.
        is_requested = (self.slurm or self.slurm_dry_run) and not self.no_table
        has_options = self.slurm_parallel or self.slurm_option
        if has_options and not (self.slurm or self.slurm_dry_run or self.finished_only):
            raise UserError(
                "--slurm-... options say how jobs are submitted: give --slurm too, or leave them "
                "out"
            )
        return is_requested


@dataclass(frozen=True)
class SlurmJob:
    """A job of SLURM, which trains and scores one model, or one and those that start from it."""

    name: str
    words: Sequence[str]  # arguments of fairseq-mhe
    finished: bool  # it has nothing to do


def submit(
    jobs: Sequence[SlurmJob], out: Path, options: SlurmOptions, device: DeviceOptions
) -> None:
    """Write OUT/slurm/job.sh, submit an array of the unfinished jobs, and say what follows."""
    total = len(jobs)
    jobs = [job for job in jobs if not job.finished]
    if not jobs:
        print(f"all {total} models are finished: leave --slurm out for the table")
        return
    folder = out.resolve() / "slurm"
    # SLURM copies the script, so a later submission may overwrite it.
    script = folder / "job.sh"
    program = [sys.executable, "-m", "fairseq_mhe_cli"]
    cases = []
    for number, job in enumerate(jobs):
        cases.append(f"{number}) set -- {shlex.join([*program, *job.words])} ;;")
    text = _SCRIPT.replace("FOLDER", shlex.quote(str(Path.cwd())))
    write_text(script, text.replace("JOBS", "\n".join(cases)))
    flags = [f"array=0-{len(jobs) - 1}%{options.slurm_parallel or 256}"]
    log = str(folder).replace("%", "%%") + "/%A_%a.log"  # sbatch replaces %j
    flags += [f"output={log}", "time=24:00:00", "cpus-per-task=8"]
    if not (device.cpu or device.processes):
        flags.append(f"gpus-per-node={device.gpus or 1}")
    flags += options.slurm_option or ()
    command = ["sbatch", "--parsable", *(f"--{flag}" for flag in flags), str(script)]
    if options.slurm_dry_run:
        print(shlex.join(command))
        print(f"{len(jobs)} of {total} models; nothing is submitted (--slurm submits)")
        return
    array = _run(command)
    for number, job in enumerate(jobs):
        print(f"{job.name}: job {array}_{number}, output {folder}/{array}_{number}.log")
    advice = "for the table of finished models give --finished-only instead of --slurm"
    print(f"{len(jobs)} of {total} models submitted; {advice}")


def _run(command: Sequence[str]) -> str:
    """Submit an array of jobs; return its number."""
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        advice = "give this command on a machine of the cluster, or --slurm-dry-run"
        raise UserError(f"--slurm needs sbatch on the PATH: {advice}") from None
    if result.returncode:
        raise UserError(f"SLURM refuses the jobs: {result.stderr.strip()}")
    return result.stdout.strip().split(";")[0]

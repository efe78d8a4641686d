"""``--slurm``: train the cells of a table as an array of SLURM jobs."""

import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import as_words, positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_text

#: The batch script; `submit` puts each job's command in place of JOBS. Two minutes before its time
#: is up, a job requeues itself; it resumes later. By hand, job N is bash OUT/slurm/job.sh N.
_SCRIPT = """#!/usr/bin/env bash
#SBATCH --job-name=fairseq-mhe --ntasks=1 --requeue --open-mode=append --signal=B:USR1@120
job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
trap '((${SLURM_RESTART_COUNT:-0} < 100)) && scontrol requeue "$job"' USR1
case "${1:-$SLURM_ARRAY_TASK_ID}" in
JOBS
*) echo "usage: bash $0 N, with the number of a job in this file" >&2; exit 2 ;;
esac
"$@" &
wait $!
"""


def add_table_arguments(parser: ArgumentParser) -> None:
    """Options of a table that submits its cells, or shows only the finished ones."""
    group = parser.add_argument_group("SLURM")
    add = group.add_mutually_exclusive_group().add_argument
    help_ = "submit an array of jobs, one a model, and return"
    add("--slurm", action="store_true", help=help_)
    help_ = "train nothing; write the table of the finished runs"
    add("--finished-only", action="store_true", help=help_)
    add = group.add_argument
    help_ = "number of jobs that may run at the same time (default: 256)"
    add("--slurm-parallel", type=positive, metavar="N", help=help_)
    help_ = "another option of sbatch (default: time=24:00:00 and cpus-per-task=8)"
    add("--slurm-option", action="append", default=[], metavar="NAME=VALUE", help=help_)


def is_requested(args: Namespace) -> bool:
    """Return whether to submit jobs; raises UserError for --slurm-... options without --slurm."""
    has_options = args.slurm_parallel or args.slurm_option
    if has_options and not (args.slurm or args.finished_only):
        raise UserError(
            "--slurm-... options say how jobs are submitted: give --slurm too, or leave them out"
        )
    return bool(args.slurm)


def words_of(args: Namespace, names: str, **own: Any) -> list[str]:
    """Return a job's arguments: the table's options ``names``, with absolute paths, and ``own``."""
    options = {name: getattr(args, name) for name in names.split()} | own
    for name, value in options.items():
        if isinstance(value, Path):
            options[name] = value.resolve()
    return as_words(options)


def submit(jobs: Mapping[str, list[str]], total: int, args: Namespace) -> None:
    """Write OUT/slurm/job.sh, submit an array of jobs, and say how to get the table.

    ``jobs``: name of each unfinished cell -> arguments of the ``fairseq-mhe`` that trains it.
    """
    if jobs:
        folder = args.out.resolve() / "slurm"
        # SLURM copies the script, so a later submission may overwrite it.
        script = folder / "job.sh"
        program = [sys.executable, "-m", "fairseq_mhe_cli"]
        cases = []
        for number, words in enumerate(jobs.values()):
            cases.append(f"{number}) set -- {shlex.join([*program, *words])} ;;")
        write_text(script, _SCRIPT.replace("JOBS", "\n".join(cases)))
        options = [f"array=0-{len(jobs) - 1}%{args.slurm_parallel or 256}"]
        log = str(folder).replace("%", "%%") + "/%A_%a.log"  # sbatch replaces %j
        options += [f"output={log}", "time=24:00:00", "cpus-per-task=8"]
        if not (args.cpu or args.processes):
            options.append(f"gpus-per-node={args.gpus or 1}")
        flags = [f"--{option}" for option in (*options, *args.slurm_option)]
        array = _sbatch([*flags, str(script)])
        for number, name in enumerate(jobs):
            job = f"{array}_{number}"
            print(f"{name}: job {job}, output {folder}/{job}.log")
    advice = "for the table of finished models give --finished-only instead of --slurm"
    print(f"{len(jobs)} of {total} models submitted; {advice}")


def _sbatch(words: list[str]) -> str:
    """Submit an array of jobs; return its number."""
    command = ["sbatch", "--parsable", *words]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        advice = "give this command on a machine of the cluster"
        raise UserError(f"--slurm needs sbatch on the PATH: {advice}") from None
    if result.returncode:
        raise UserError(f"SLURM refuses the jobs: {result.stderr.strip()}")
    return result.stdout.strip().split(";")[0]

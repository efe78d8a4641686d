"""The cells of a table as a SLURM job array; a job that runs out of time is submitted again."""

import argparse
import importlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json

#: What a job asks for by default, and jobs at a time.
_CORES, _HOURS, _MOST_JOBS = 8, 24.0, 256
#: Options of a table that its jobs need.
_OF_JOBS = ("gpus", "processes", "cpu", "subset", "tensorboard", "bleu_tokenizer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-table`` and ``nlu-table`` for SLURM, and ``--finished-only``."""
    group = parser.add_argument_group("SLURM")
    add = group.add_mutually_exclusive_group().add_argument
    add("--slurm", action="store_true", help="submit an array of jobs, one a cell, and return")
    add(
        "--finished-only",
        action="store_true",
        help="train nothing: the table of what is finished",
    )
    add = group.add_argument
    add("--slurm-hours", type=float, metavar="H", help=f"time limit (default: {_HOURS:g})")
    add("--slurm-cpus", type=positive, metavar="N", help=f"cores a job (default: {_CORES})")
    help_ = f"jobs at a time at most (default: {_MOST_JOBS})"
    add("--slurm-parallel", type=positive, metavar="N", help=help_)
    help_ = "further options of sbatch: partition=gpu, account=mine, constraint=a100"
    add("--slurm-option", action="append", default=[], metavar="NAME=VALUE", help=help_)


class CellJob:
    """One job, as submitit pickles it; asked again, it resumes."""

    def __init__(self, jobs: Path, number: int) -> None:
        """``jobs``: the file; ``number``: which of its jobs, from 0."""
        self.words = [str(jobs), str(number)]

    def __call__(self) -> None:
        """Run it, without the signal by which SLURM announces the end: it is for submitit."""
        line = [sys.executable, "-m", "fairseq_mhe.cli", "run-jobs", *self.words]
        ignore = signal.SIGUSR2, signal.SIG_IGN
        subprocess.run(line, check=True, preexec_fn=lambda: signal.signal(*ignore))

    def checkpoint(self) -> Any:
        """Called by submitit when the time is up or the job pre-empted: submit the same again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def asked_for(args: argparse.Namespace) -> bool:
    """Whether jobs are to be submitted.

    Raises:
        UserError: the options say how, and not that: the table would be trained here.
    """
    how = args.slurm_hours or args.slurm_cpus or args.slurm_parallel or args.slurm_option
    if how and not (args.slurm or args.finished_only):
        raise UserError(
            "--slurm-... options say how jobs are submitted: give --slurm too, or leave them out"
        )
    return bool(args.slurm)


def submit(jobs: Mapping[str, Mapping[str, Any]], total: int, args: argparse.Namespace) -> None:
    """Write jobs.json, submit each job of ``total`` cells, and say how to get the table.

    ``jobs``: name -> what `run_jobs` reads, beside the devices that ``args`` ask for.

    Raises:
        UserError: submitit or SLURM is not there, an option is wrong, or SLURM refuses.
    """
    if jobs:
        path = args.out.resolve() / "jobs.json"
        shared = {name: getattr(args, name) for name in _OF_JOBS if hasattr(args, name)}
        before = read_json(path) if path.exists() else []  # whose jobs may be at work
        write_json(path, [*before, *({"name": n, **shared, **job} for n, job in jobs.items())])
        numbers = range(len(before), len(before) + len(jobs))
        try:
            executor = _executor(args)
            submitted = executor.submit_array([CellJob(path, number) for number in numbers])
        except ImportError as error:
            raise UserError("submitit is not installed: pip install submitit") from error
        except (
            Exception
        ) as error:  # submitit passes on what sbatch says in exceptions of its own
            raise UserError(f"SLURM refuses the jobs: {error}") from error
        for name, job in zip(jobs, submitted, strict=True):
            print(f"{name}: job {job.job_id}, output {job.paths.stdout}")
    print(
        f"{len(jobs)} of {total} cells submitted; the table of what is finished: "
        "--finished-only without --slurm"
    )


def _executor(args: argparse.Namespace) -> Any:
    """submitit's executor with our parameters; the batch files are below the folder of the runs."""
    # Jobs that run out of time are submitted again, a hundred times at most.
    executor = importlib.import_module("submitit").SlurmExecutor(
        folder=args.out.resolve() / "slurm" / "%j", max_num_timeout=100
    )
    gpus = {} if args.cpu or args.processes else {"gpus_per_node": args.gpus or 1}
    executor.update_parameters(
        job_name="fairseq-mhe",
        time=max(1, int(60 * (args.slurm_hours or _HOURS))),
        ntasks_per_node=1,
        cpus_per_task=args.slurm_cpus or _CORES,
        array_parallelism=args.slurm_parallel or _MOST_JOBS,
        stderr_to_stdout=True,
        additional_parameters=dict(option.split("=", 1) for option in args.slurm_option),
        **gpus,
    )
    return executor

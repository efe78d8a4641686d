"""The cells of a table as a SLURM job array; one that runs out of time goes on."""

import argparse
import importlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.pipeline import scored
from fairseq_mhe.runs.run import Run

#: How often a job that runs out of time is submitted again.
_MOST_REQUEUES = 100
_MOST_JOBS = 256  # at a time
#: What a job asks for by default.
_CORES, _HOURS = 8, 24.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-table`` and ``nlu-table`` for SLURM."""
    add = parser.add_argument_group("SLURM").add_argument
    add("--slurm", action="store_true", help="submit an array of jobs, one a cell, and return")
    add("--slurm-hours", type=_hours, metavar="H", help=f"time limit (default: {_HOURS:g})")
    add("--slurm-cpus", type=positive, metavar="N", help=f"cores a job (default: {_CORES})")
    told = f"jobs at a time at most (default: {_MOST_JOBS})"
    add("--slurm-parallel", type=positive, metavar="N", help=told)
    told = "further options of sbatch: partition=gpu, account=mine, constraint=a100"
    add("--slurm-option", action="append", default=[], metavar="NAME=VALUE", help=told)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours < 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no time limit in hours")
    return hours


class CellJob:
    """One cell's job, as submitit pickles it: train, translate, score; asked again, it goes on."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    def __call__(self) -> None:
        """Run it.

        Raises:
            CalledProcessError: it failed; its output says why.
        """
        # SLURM announces the end to every process of the job; only submitit, which runs this, has
        # to act on it.
        subprocess.run(
            [sys.executable, "-m", "fairseq_mhe.cli", *self.words],
            check=True,
            preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
        )

    def checkpoint(self) -> Any:
        """Called by submitit when the time is up or the job pre-empted: submit the same again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def train_words(run: Run, args: argparse.Namespace) -> list[str]:
    """The words after ``fairseq-mhe`` that train and score a run, whose settings they repeat."""
    words = ["train", run.row, run.kind, "--seed", str(run.seed)]
    words += ["--evaluate", "--subset", args.subset]
    words += ["--data", str(args.data.resolve()), "--out", str(args.out.resolve())]
    numbers = ("updates", "fraction", "batch_tokens", "max_tokens", "gpus", "processes")
    options = {name: getattr(args, name) for name in (*numbers, "bleu_tokenizer")}
    options["precision"] = run.training.precision
    for option, value in options.items():
        if value is not None:
            words += [f"--{option.replace('_', '-')}", str(value)]
    words += [f"--{option}" for option in ("cpu", "tensorboard") if getattr(args, option)]
    return words


def asked_for(args: argparse.Namespace) -> bool:
    """Whether jobs are to be submitted.

    Raises:
        UserError: that, and at the same time to train nothing; or how, and not that.
    """
    if args.slurm and args.finished_only:
        raise UserError(
            "--slurm submits jobs, --finished-only trains nothing: leave one of them out"
        )
    how = args.slurm_hours or args.slurm_cpus or args.slurm_parallel or args.slurm_option
    if how and not (args.slurm or args.finished_only):
        raise UserError(
            "--slurm-... options say how jobs are submitted: give --slurm too, or leave them out"
        )
    return bool(args.slurm)


def submit(runs: Sequence[Run], args: argparse.Namespace) -> None:
    """Submit a job for each run that is not done, and say how to get the table.

    Raises:
        UserError: as `submit_jobs`.
    """
    waiting = [run for run in runs if not scored(run, args.subset, args.bleu_tokenizer)]
    submit_jobs({run.name: train_words(run, args) for run in waiting}, len(runs), args)


def submit_jobs(jobs: Mapping[str, Sequence[str]], total: int, args: argparse.Namespace) -> None:
    """Submit what waits of ``total`` cells: name -> the words after ``fairseq-mhe``.

    Raises:
        UserError: submitit or SLURM is not there, an option is wrong, or SLURM refuses.
    """
    if jobs:
        executor = _executor(args)
        try:
            submitted = executor.submit_array([CellJob(words) for words in jobs.values()])
        except Exception as error:  # submitit passes on what sbatch says in an exception of its own
            raise UserError(f"SLURM refuses the jobs: {error}") from error
        for name, job in zip(jobs, submitted, strict=True):
            print(f"{name}: job {job.job_id}, output {job.paths.stdout}")
    print(
        f"{len(jobs)} of {total} cells submitted; the table of what is finished: "
        "--finished-only without --slurm"
    )


def _executor(args: argparse.Namespace) -> Any:
    """submitit's executor with our parameters; the batch files are below the folder of the runs."""
    try:
        submitit = importlib.import_module("submitit")
    except ImportError as error:
        raise UserError("submitit is not installed: pip install 'fairseq-mhe[slurm]'") from error
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise UserError(
            "sbatch and srun are not on this machine: run --slurm where SLURM jobs are submitted"
        )
    further = dict(option.partition("=")[::2] for option in args.slurm_option)
    if not all(further.values()):
        raise UserError(f"--slurm-option takes NAME=VALUE, not {' '.join(args.slurm_option)}")
    executor = submitit.SlurmExecutor(
        folder=args.out.resolve() / "slurm" / "%j", max_num_timeout=_MOST_REQUEUES
    )
    gpus = {} if args.cpu or args.processes else {"gpus_per_node": args.gpus or 1}
    executor.update_parameters(
        job_name="fairseq-mhe",
        time=max(1, int(60 * (args.slurm_hours or _HOURS))),
        ntasks_per_node=1,
        cpus_per_task=args.slurm_cpus or _CORES,
        array_parallelism=args.slurm_parallel or _MOST_JOBS,
        stderr_to_stdout=True,
        additional_parameters=further,
        **gpus,
    )
    return executor

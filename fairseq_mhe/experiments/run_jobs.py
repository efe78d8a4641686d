"""``fairseq-mhe run-jobs``: one of the jobs that ``run-table`` or ``nlu-table --slurm`` wrote."""

import argparse
from pathlib import Path

from fairseq_mhe.common.arguments import at_least
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.experiments import nlu_table, run_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe run-jobs``."""
    add = parser.add_argument
    add("jobs", type=Path, metavar="JOBS", help="OUT/jobs.json of a table that was submitted")
    add("number", type=at_least(0), metavar="N", help="of the job, from 0")


def run(args: argparse.Namespace) -> None:
    """Train and score, in the job's own folders; the table is not written."""
    jobs = read_json(args.jobs)
    if args.number >= len(jobs):
        raise UserError(f"{args.jobs} has {len(jobs)} jobs, numbered from 0: no {args.number}")
    job = jobs[args.number]
    command = {"run-table": run_table, "nlu-table": nlu_table}[job["command"]]
    command.run_job(job)

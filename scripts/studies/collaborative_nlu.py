"""``collaborative-nlu``: task scores by the shared width D (Cordonnier et al. 2020, table 2)."""

import shlex
import sys
from argparse import Namespace
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.cli import run_subcommand
from fairseq_mhe.common.arguments import Parser, add_options, from_options, positive, positive_list
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import lock_folder, output_folder, read_json, write_json
from fairseq_mhe.experiments.evaluate import evaluate_language_model
from fairseq_mhe.experiments.grid import raise_failures
from fairseq_mhe.experiments.language import LanguageTrainings
from fairseq_mhe.experiments.run_study import make_start, write_report
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.report.table import Block, Table, column, seeds_column
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.finetuning import FinetuningRecipe
from fairseq_mhe.runs.job import Job, read_job

TITLE = "Collaborative attention: scores of fine-tuned models by D"


def build_parser(_: str) -> Parser:
    """Return the parser of this study."""
    parser = Parser(prog="collaborative-nlu", description=TITLE)
    add = parser.add_argument
    help_ = "finished runs of finetune, of one or more tasks and seeds (the paper has mha)"
    add("--runs", type=Path, nargs="+", required=True, metavar="RUN", help=help_)
    help_ = "the task folders that the runs were fine-tuned on"
    add("--tasks", type=Path, nargs="+", required=True, metavar="TASK-DATA", help=help_)
    add("--epochs", type=positive, metavar="N", help="epochs of fine-tuning (default: the task's)")
    add("--out", type=Path, default="runs/collaborative-nlu", help="folder (default: %(default)s)")
    add("--dims", type=positive_list, default="16,32,64,128", metavar="D,...", help="widths D")
    add("--iterations", type=positive, default=200, metavar="N", help="of the decomposition")
    add_options(parser, devices.DeviceOptions)
    parser.set_defaults(function=run)
    return parser


def run(args: Namespace) -> None:
    """For each D decompose the models, score them, and fine-tune them again; report all scores."""
    out = output_folder(args.out)
    command = f"bash scripts/study.sh collaborative-nlu {shlex.join(args.typed)}"
    device = from_options(devices.DeviceOptions, args)
    trainings = LanguageTrainings(out, device, command)
    tasks = {task.task.name: task for task in map(open_task, args.tasks)}
    runs = [read_job(folder) for folder in args.runs]
    for job in runs:
        check(job, runs[0], {name: task.identity for name, task in tasks.items()})
    rows = [scores_by_task("before", None, runs)]
    with lock_folder(out):
        for dim in sorted(args.dims):
            starts, planned = [], []
            for job in runs:
                start = Job(out / f"{job.name}-D{dim}", job.config)
                fit = {"collaborative_dim": dim, "iterations": args.iterations}
                make_start(start.last, "collaborative", fit, job.last, None)
                if not start.metrics.exists():  # the decomposition needs no training
                    write_json(start.metrics, {})
                evaluate_language_model(start, None, device)
                starts.append(start)
                task, recipe = tasks[job.settings["task"]], FinetuningRecipe(epochs=args.epochs)
                planned.append(trainings.finetuning(start.folder, task, job.seed, recipe))
            grid = trainings.grid(partial(list, planned), len(planned))
            raise_failures(grid.train(), len(planned))
            count = attention_parameters(open_source(starts[0].last).model)
            for name, jobs in (("decomposed", starts), ("fine-tuned again", planned)):
                row = scores_by_task(name, dim, jobs)
                rows.append({**row, "attention_parameters": count})
    columns = [column("variant", "variant"), column("D", "D", "", "-")]
    columns.append(column("attention parameters", "attention_parameters", ",", "-"))
    columns += [seeds_column(name, name) for name in tasks]
    note = "A score is the mean over seeds, with the standard deviation where there are several."
    table = Table(TITLE, [Block(columns, rows)], [note])
    path = out / "collaborative-nlu.md"
    write_report(table, path, {"rows": rows}, command, devices.on_gpu(device))


def scores_by_task(name: str, dim: int | None, jobs: list[Job]) -> dict[str, Any]:
    """Return a row of the table: task -> the score of each seed."""
    row: dict[str, Any] = defaultdict(list, variant=name, D=dim)
    for job in jobs:
        row[job.settings["task"]].append(read_json(job.scores)["scores"]["score"])
    return row


def check(job: Job, first: Job, identities: dict[str, Any]) -> None:
    """Raise UserError unless a run is a finished fine-tuning of one model on the given tasks."""
    name = job.settings.get("task", "no task")  # as a run of pretrain or train
    if name not in identities:
        raise UserError(f"{job.folder} was fine-tuned on {name}: change --runs or --tasks")
    if job.settings["data"] != identities[name]:
        raise UserError(f"{job.folder} was trained on another folder than --tasks: give its own")
    if not job.scores.exists():
        raise UserError(f"{job.folder} has no scores yet: give its finetune command again")
    if job.settings["start"] != first.settings["start"]:
        both = f"{first.folder} and {job.folder}"
        raise UserError(f"{both} start from different models: run a study for each model")


if __name__ == "__main__":
    sys.exit(run_subcommand("study.sh collaborative-nlu", build_parser, None))

"""``collaborative-nlu``: task scores by the shared width D (Cordonnier et al. 2020, table 2)."""

from argparse import ArgumentParser, Namespace
from collections import defaultdict
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import lock_folder, output_folder, read_json, write_json
from fairseq_mhe.experiments.language import finish
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.report.table import Block, Table, columns, seeds_column
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.understanding import describe, plan_finetuning, score_task
from studies.report import write
from studies.study import make_start
from studies.variants import STUDIES, add_options, decomposition

TITLE = "Collaborative attention: scores of fine-tuned models by D"


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "finished runs of finetune, of one or more tasks and seeds (the paper has mha)"
    add("--runs", type=Path, nargs="+", required=True, metavar="RUN", help=help_)
    help_ = "the task folders that the runs were fine-tuned on"
    add("--tasks", type=Path, nargs="+", required=True, metavar="TASK-DATA", help=help_)
    add("--epochs", type=positive, metavar="N", help="fine-tuning epochs (default: the recipe's)")
    add("--out", type=Path, default="runs/collaborative-nlu", help="folder (default: %(default)s)")
    of_curve = STUDIES["collaborative-curve"].options
    add_options(parser, {name: of_curve[name] for name in ("--dims", "--iterations")})
    devices.add_arguments(parser)


def run(args: Namespace) -> None:
    """For each D decompose the models, score them, and fine-tune them again; report all scores."""
    out = output_folder(args.out)
    tasks = {task.task.name: task for task in map(open_task, args.tasks)}
    runs = finetuned_jobs(args.runs, tasks)
    before: dict[str, Any] = defaultdict(list, variant="before")
    for job in runs:
        before[job.settings["task"]].append(read_json(job.scores)["scores"]["score"])
    rows = [before]
    with lock_folder(out):
        for dim in sorted(args.dims):
            decomposed: dict[str, Any] = defaultdict(list, variant="decomposed", D=dim)
            planned = []
            for job in runs:
                task, start = tasks[job.settings["task"]], Job(out / f"{job.name}-D{dim}", {})
                make_start(decomposition(dim, args.iterations), start.last, job.last, None)
                if not start.scores.exists():
                    values = score_task(start, task, devices.on_gpu(args))["scores"]
                    write_json(start.scores, {**values, "model": describe(start.last)})
                decomposed[task.task.name].append(read_json(start.scores)["score"])
                planned.append(plan_finetuning(start.folder, task, job.seed, args))
            count = attention_parameters(open_source(start.last).model)
            tuned: dict[str, Any] = defaultdict(list, variant="fine-tuned again", D=dim)
            for scores in finish(planned, args):
                tuned[scores["task"]].append(scores["scores"]["score"])
            rows += [{**row, "attention_parameters": count} for row in (decomposed, tuned)]
    task_columns = [seeds_column(name, name) for name in before if name != "variant"]
    block = Block([*columns("collaborative-nlu"), *task_columns], rows)
    note = "A score is the mean over seeds, with the standard deviation where there are several."
    write(args, "collaborative-nlu", Table(TITLE, [block], [note]), {"rows": rows})


def finetuned_jobs(folders: list[Path], tasks: dict[str, TaskFolder]) -> list[Job]:
    """Open the runs; UserError unless all are finished fine-tunings of one model on ``tasks``."""
    jobs = [read_job(folder) for folder in folders]
    for job in jobs:
        name = job.settings.get("task", "no task")  # as a run of pretrain or train
        if name not in tasks:
            raise UserError(f"{job.folder} was fine-tuned on {name}: change --runs or --tasks")
        task = tasks[name]
        if job.settings["data"] != task.identity:
            raise UserError(f"{job.folder} was not trained on {task.folder}: give its task folder")
        if not job.scores.exists():
            raise UserError(f"{job.folder} has no scores yet: give its finetune command again")
        if job.settings["start"] != jobs[0].settings["start"]:
            both = f"{jobs[0].folder} and {job.folder}"
            raise UserError(f"{both} start from different models: run a study for each model")
    return jobs

"""``fairseq-mhe finetune``: a masked language model on a task, and the task's official score."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json, write_json
from fairseq_mhe.experiments.pretrain import train_and_score
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.finetuning import describe, plan_finetuning, trained_on
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.task_scores import score_task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe finetune``."""
    add = parser.add_argument
    help_ = "a folder of data-prep/glue.sh, superglue.sh or squad.sh"
    add("task", type=Path, metavar="TASK-DATA", help=help_)
    help_ = "a masked language model, stock or ours: a run folder of pretrain, or a checkpoint"
    add("--model", type=Path, required=True, metavar="MODEL", help=help_)
    add(
        "--out", type=Path, default=Path("runs/language"), metavar="RUNS", help="folder of runs"
    )
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--epochs", type=positive, metavar="N", help="another number than the recipe's")
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Fine-tune, or resume, predict, score, and name the run folder."""
    data = open_task(args.task)
    job = plan(args.model, data, args.seed, args)
    (scores,) = fine_tune([(job, data)], args)
    for official, examples in scores["examples"].items():
        print(f"{data.task.name}, {examples:,} of {official}")
    for name, value in scores["scores"].items():
        print(f"{name}: {value:.2f}%")
    print(job.folder)


def plan(model: Path, data: TaskFolder, number: int, args: argparse.Namespace) -> Job:
    """As `plan_finetuning`; ``args``: out, epochs, precision and the options of `devices`."""
    numbers = devices.precision(args)
    return plan_finetuning(model, data, number, output_folder(args.out), args.epochs, numbers)


def fine_tune(
    planned: Sequence[tuple[Job, TaskFolder]], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train and score runs, as `train_and_score`; what their scores.json hold."""
    tasks = {job.name: task for job, task in planned}

    def score(job: Job, gpu: bool) -> None:
        data = tasks[job.name]
        counts, values = score_task(job, data, gpu)
        scores = {"task": data.task.name, "examples": counts, "scores": values}
        write_json(job.scores, {**scores, "model": describe(job.last), "data": data.scored})

    jobs = [job for job, _ in planned]
    train_and_score(jobs, lambda job: scored(job.folder, tasks[job.name]), score, args)
    return [read_json(job.scores) for job in jobs]


def scored(folder: Path, data: TaskFolder) -> bool:
    """Whether a fine-tuned run has its scores, of what is scored now.

    Raises:
        UserError: it was trained on other examples.
    """
    path = folder / "scores.json"
    if not path.exists():
        return False
    check_data(folder, trained_on(data), data.folder)
    return bool(read_json(path)["data"] == data.scored)


def check_data(run: Path, data: Any, place: Path) -> None:
    """Refuse a run folder of other ``data`` than the folder ``place`` has.

    Raises:
        UserError: the data differ.
    """
    if read_job(run).settings["data"] != data:
        raise UserError(
            f"{run} is not of {place}: give the data that it was trained on, or another --out"
        )

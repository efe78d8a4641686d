"""``fairseq-mhe finetune``: a masked language model on a task, and the task's official score."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json, sha256, write_json
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.tables import align
from fairseq_mhe.experiments.work import work
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.finetuning import plan_finetuning, trained_on
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.resuming import LAST
from fairseq_mhe.runs.task_scores import score_task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe finetune``."""
    add = parser.add_argument
    add(
        "task",
        type=Path,
        metavar="TASK-DATA",
        help="a folder of data-prep/glue.sh, superglue.sh or squad.sh",
    )
    told = "a masked language model, stock or ours: a run folder of pretrain, or a checkpoint"
    add("--model", type=Path, required=True, metavar="MODEL", help=told)
    add("--out", type=Path, default=Path("runs/language"), metavar="RUNS", help="folder of runs")
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--epochs", type=positive, metavar="N", help="another number than the recipe's")
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Fine-tune, or resume, predict, score, and name the run folder."""
    data = open_task(args.task)
    made = plan(args.model, data, args.seed, args.out, args.epochs, args)
    ((_, found),) = fine_tune_all([(made, data)], args)
    examples = ", ".join(f"{count:,} of {name}" for name, count in found["examples"].items())
    rows = [(name, f"{value:.2f}") for name, value in found["scores"].items()]
    print(align((f"{data.task.name}, {examples}", "%"), rows, "markdown", left=(0,)))
    print(made.folder)


def plan(
    model: Path,
    data: TaskFolder,
    number: int,
    out: Path,
    epochs: int | None,
    where: argparse.Namespace,
) -> Job:
    """The run that fine-tunes a model.

    Args:
        model: a run folder or a checkpoint.
        data: the task.
        number: the seed.
        out: the folder of runs.
        epochs: another number than the recipe's.
        where: the options of `devices`, and ``precision``.

    Raises:
        UserError: the model or task do not fit.
    """
    checkpoint = _whole(model) if model.is_dir() else model
    folder = output_folder(out / run_name(model, data, number))
    numbers = devices.precision(where)
    return plan_finetuning(folder, checkpoint, data, number, epochs, numbers)


def _whole(run: Path) -> Path:
    """The model of a run folder, trained or, by a study, converted.

    Raises:
        UserError: it is not trained to its end, or the model is not there any more.
    """
    trained, converted = run / "metrics.json", run / "checkpoints" / "conversion.json"
    if not trained.exists() and not converted.exists():
        raise UserError(
            f"{run} is no run that is trained to its end: give the command that trains it again, "
            "which goes on"
        )
    path = run / "checkpoints" / LAST
    if not path.exists():
        raise UserError(
            f"{run} was kept without its model, which nothing more can be trained from: give "
            "--finished-only for the table of what is finished, or another --out"
        )
    return path


def run_name(model: Path, data: TaskFolder, number: int) -> str:
    """The folder of a model's fine-tuning, by the model's name."""
    name = model.resolve().name if model.is_dir() else model.stem
    return f"{name}-{data.task.name}-seed{number}"


def fine_tune_all(
    planned: Sequence[tuple[Job, TaskFolder]], where: argparse.Namespace
) -> list[tuple[Job, dict[str, Any]]]:
    """Train as many side by side as the devices hold, then score each; runs and their scores.

    Raises:
        UserError: another process is at work in a folder, or training failed.
    """
    tasks = {run.name: task for run, task in planned}
    runs = [run for run, _ in planned]
    waiting = [run for run in runs if not scored(run.folder, tasks[run.name])]
    device = devices.asked_for(where, models=max(1, len(waiting)))

    def score(run: Job, board: Board) -> None:
        _score(run, tasks[run.name], device.gpu)

    for run in waiting:
        training = run.training
        say(f"{run.name}: {training.updates:,} updates {device.describe(training.precision)}")
    work(runs, device, lambda run: scored(run.folder, tasks[run.name]), score)
    return [(run, read_json(run.scores)) for run in runs]


def _score(run: Job, data: TaskFolder, gpu: bool) -> None:
    """Predict every example, and write predictions and scores."""
    counts, values = score_task(run, data, gpu)
    found = {"task": data.task.name, "examples": counts, "scores": values}
    write_json(run.scores, {**found, "model": sha256(run.last), "data": data.scored})


def seed_scores(runs: Sequence[Path]) -> list[float]:
    """The scores of finished runs that differ in their seed.

    Raises:
        UserError: they differ in more.
    """
    check_alike(runs)
    found = [read_json(run / "scores.json") for run in runs if (run / "scores.json").exists()]
    return [float(scores["scores"]["score"]) for scores in found]


def check_alike(runs: Sequence[Path], but: Collection[str] = ("seed",)) -> None:
    """See that runs were made in one way, but for some of their settings and options.

    Raises:
        UserError: they were not, so that numbers of theirs do not belong into one row or column.
    """
    first, *others = map(_flat_settings, runs)
    for run, settings in zip(runs[1:], others, strict=True):
        for name in sorted({**first, **settings}.keys() - set(but)):
            if settings.get(name) != first.get(name):
                raise UserError(
                    f"{run} has {name} {settings.get(name)}, and {runs[0]} has {first.get(name)}: "
                    "numbers of both make no table; take one away"
                )


def _flat_settings(folder: Path) -> dict[str, Any]:
    """A run's settings and fairseq's options side by side."""
    run = read_job(folder)
    both = {**run.settings, **run.training.options, "precision": run.training.precision}
    return {name: both[name] for name in both if name not in ("options", "bf16", "fp16")}


def scored(folder: Path, task: TaskFolder) -> bool:
    """Whether a fine-tuned run has its scores, of what is scored now.

    Raises:
        UserError: it was trained on other examples.
    """
    path = folder / "scores.json"
    if not path.exists():
        return False
    scores = read_json(path)
    check_made_of(folder, trained_on(task), task.folder)
    return bool(scores["data"] == task.scored)


def check_made_of(run: Path, data: Any, place: Path) -> None:
    """See that a run folder is of ``data``, the identity of the folder ``place``.

    Raises:
        UserError: it is not.
    """
    if read_job(run).settings["data"] != data:
        told = "give the data that it was made of, or another --out"
        raise UserError(f"{run} is not of {place}: {told}")

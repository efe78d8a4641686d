"""``collaborative-nlu``: scores of tasks against D, the second table of Cordonnier et al. 2020.

A fine-tuned masked model is decomposed to collaborative attention of width D and scored as it is,
and again after it was fine-tuned on the task once more.
"""

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import positive, positive_list
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json, sha256, write_json
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.convert.to_collaborative import report, to_collaborative
from fairseq_mhe.experiments.finetune import fine_tune_all, finished_scores, plan
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.prepare.data_folder import open_text
from fairseq_mhe.prepare.task_folder import TaskFolder, open_tasks
from fairseq_mhe.report.plots import look
from fairseq_mhe.report.table import with_deviation
from fairseq_mhe.runs import devices, precision
from fairseq_mhe.runs.finetuning import trained_on
from fairseq_mhe.runs.language_runs import LanguageRun, language_config
from fairseq_mhe.runs.task_scores import score_task
from studies.conversions import convert_once
from studies.study import Report, Study

_SERIES = ("decomposed", "fine-tuned again")


@dataclass(frozen=True)
class _Tuned:
    """A finished run of finetune; ``start``: the checksum of the model that was fine-tuned."""

    task: TaskFolder
    score: float
    seed: int
    start: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``collaborative-nlu``."""
    add = parser.add_argument
    told = "finished runs of finetune, of mha in the paper; several seeds and tasks"
    add("--runs", type=Path, nargs="+", required=True, metavar="RUN", help=told)
    told = "the tasks' folders"
    add("--tasks", type=Path, nargs="+", required=True, metavar="TASK-DATA", help=told)
    told = "the language model's data folder: errors count as they do on its text"
    add("--data", type=Path, required=True, help=told)
    told = "widths (default: %(default)s; of base: 768,512,256,128)"
    add("--dims", type=positive_list, default="16,32,64,128", metavar="D,...", help=told)
    add("--iterations", type=positive, default=200, metavar="N", help="rounds of the decomposition")
    add("--sentences", type=positive, default=1000, metavar="N", help="of the text")
    add("--unweighted", action="store_true", help="decompose the bare weights, as the paper does")
    add("--epochs", type=positive, metavar="N", help="of fine-tuning again, not the recipe's")
    add("--out", type=Path, default=Path("runs/collaborative-nlu"), help="folder of the study")
    precision.add_argument(parser)
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Convert, score, fine-tune again and report; what is done already is not done again."""
    args.dims = sorted(set(args.dims))
    tasks = {task.task.name: task for task in open_tasks(args.tasks)}
    gpu = torch.cuda.is_available() and devices.on_gpu(args)
    study = Study(output_folder(args.out), open_text(args.data), "", gpu, args.typed)
    own = {folder: _own(folder, tasks) for folder in args.runs}
    _check_one_model(own)
    found: dict[str, Any] = {"before": {}, **{name: {} for name in _SERIES}}
    parameters: dict[int, int] = {}
    with only_one(study.out, below=False):
        for tuned in own.values():
            found["before"].setdefault(tuned.task.task.name, []).append(tuned.score)
        for dim in args.dims:
            again = []
            for folder, tuned in own.items():
                start = _decomposed(study, folder, dim, args)
                parameters[dim] = attention_parameters(open_source(start.checkpoint).model)
                score = _score(start, tuned.task, gpu)
                _add(found["decomposed"], dim, tuned.task, score)
                where = (study.out, args.epochs, args)
                training = plan(start.folder, tuned.task, tuned.seed, *where)
                again.append((training, tuned.task))
            scored = fine_tune_all(again, args)
            for (_, values), (_, task) in zip(scored, again, strict=True):
                _add(found["fine-tuned again"], dim, task, values["scores"]["score"])
    _report(study, found, parameters, args)


def _own(folder: Path, tasks: Mapping[str, TaskFolder]) -> _Tuned:
    """What a finished run says.

    Raises:
        UserError: it is not finished, or its task is not given, or another form of it.
    """
    config = language_config(folder)
    scores = finished_scores(folder)
    if scores is None:
        raise UserError(f"{folder} has no scores yet: finish it with fairseq-mhe finetune")
    if config["task"] not in tasks:
        raise UserError(f"{folder} is of {config['task']}: name its folder too, in --tasks")
    task = tasks[config["task"]]
    if config["data"] != trained_on(task) or scores["data"] != task.scored:
        raise UserError(
            f"{folder} was trained or scored on other examples than {task.folder} has: name the "
            "folder of its examples in --tasks, or give its finetune command again"
        )
    return _Tuned(task, float(scores["scores"]["score"]), config["seed"], config["start"])


def _check_one_model(own: Mapping[Path, _Tuned]) -> None:
    """See that the runs are fine-tunings of one model: else a mean would be of several.

    Raises:
        UserError: they are not.
    """
    first, tuned = next(iter(own.items()))
    for folder, other in own.items():
        if other.start != tuned.start:
            raise UserError(
                f"{first} and {folder} were fine-tuned from two models, and a score is the mean "
                "over the seeds of one: give a study to each"
            )


def _add(
    series: dict[int, dict[str, list[float]]], dim: int, task: TaskFolder, score: float
) -> None:
    series.setdefault(dim, {}).setdefault(task.task.name, []).append(score)


def _decomposed(study: Study, source: Path, dim: int, args: argparse.Namespace) -> LanguageRun:
    """A run's model with collaborative attention of a width, in a folder of its own."""
    made = LanguageRun(study.out / f"{source.name}-D{dim}", {}, 0)
    weighted = not args.unweighted

    def action(output: Path, material: Any) -> dict[str, Any]:
        return report(to_collaborative(output, dim, args.iterations, material, weighted))

    inputs = {"dim": dim, "iterations": args.iterations}
    inputs |= {"sentences": args.sentences, "unweighted": args.unweighted}
    whole = LanguageRun(source, {}, 0).checkpoint
    convert_once(made.folder, made.checkpoint, whole, study.data.folder, inputs, action)
    return made


def _score(made: LanguageRun, task: TaskFolder, gpu: bool) -> float:
    """The task's score of a model as it is."""
    path = made.folder / "score.json"

    def score() -> None:
        _, values = score_task(made, task, gpu)
        write_json(path, values)

    inputs = {"model": sha256(made.checkpoint), "task": task.scored}
    Steps(made.folder).perform("score", inputs, [path], score)
    return float(read_json(path)["score"])


def _report(
    study: Study, found: Mapping[str, Any], parameters: Mapping[int, int], args: argparse.Namespace
) -> None:
    tasks = list(found["before"])
    rows = []
    for dim in args.dims:
        row = [str(dim), f"{parameters[dim]:,}"]
        for name in _SERIES:
            row += [with_deviation(found[name][dim][task]) for task in tasks]
        rows.append(row)
    before = ", ".join(f"{task} {with_deviation(found['before'][task])}" for task in tasks)
    heading = ["D", "attention parameters"]
    heading += [f"{task}, {name}" for name in _SERIES for task in tasks]
    by = "" if args.unweighted else f", weighted by {args.sentences:,} blocks of the text"
    notes = [
        "A score is the mean over seeds, with the standard deviation where there are several.",
        f"Decomposed by {args.iterations} rounds at most{by}.",
    ]
    results = {"dims": args.dims, "attention_parameters": parameters, **found}
    title = "Collaborative attention: scores of fine-tuned models against D"
    draw = partial(_draw, found=found, tasks=tasks, title=title)
    table = (f"Scores by D (the models themselves: {before})", heading, rows)
    Report("collaborative-nlu", title, results, [table], notes, draw).write(study)


def _draw(figure: Figure, found: Mapping[str, Any], tasks: list[str], title: str) -> None:
    axes = figure.subplots()
    for index, task in enumerate(tasks):
        style = {**look(index), "linewidth": 2, "markersize": 8}
        own = statistics.mean(found["before"][task])
        axes.axhline(own, color=style["color"], linewidth=1, linestyle=":")
        for name, dash in zip(_SERIES, ("--", "-"), strict=True):
            points = {dim: statistics.mean(scores[task]) for dim, scores in found[name].items()}
            places, values = list(points), list(points.values())
            axes.plot(places, values, label=f"{task}, {name}", **{**style, "linestyle": dash})
    axes.set_xscale("log", base=2)
    axes.set_xlabel("D, width of all queries and keys", fontsize=12)
    axes.set_ylabel("score (dotted: before)", fontsize=12)
    axes.set_title(title, fontsize=12)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=11)

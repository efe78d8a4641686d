"""``collaborative-nlu``: scores of tasks against D, the second table of Cordonnier et al. 2020.

Fine-tuned masked models are decomposed to collaborative attention of width D and scored as they
are, and again after they were fine-tuned on the task once more.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json, write_json
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.common.tables import column
from fairseq_mhe.experiments.finetune import fine_tune, plan
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.prepare.data_folder import open_text
from fairseq_mhe.prepare.task_folder import TaskFolder, open_tasks
from fairseq_mhe.report.table import Block, Table, over_seeds
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.finetuning import describe, trained_on
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.task_scores import score_task
from studies.collaborative_curve import add_decomposition, decomposition
from studies.report import write
from studies.study import add_sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``collaborative-nlu``."""
    add = parser.add_argument
    runs = "finished runs of finetune, of mha in the paper; several seeds and tasks"
    add("--runs", type=Path, nargs="+", required=True, metavar="RUN", help=runs)
    add("--tasks", type=Path, nargs="+", required=True, metavar="TASK-DATA", help="their folders")
    data = "the language model's data folder: errors count as they do on its text"
    add("--data", type=Path, required=True, help=data)
    add("--epochs", type=positive, metavar="N", help="of fine-tuning again, not the recipe's")
    add("--out", type=Path, default=Path("runs/collaborative-nlu"), help="folder of the study")
    add_decomposition(parser)
    add_sentences(parser)
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Convert, score, fine-tune again and report; what is done already is not done again."""
    out, data, dims = output_folder(args.out), open_text(args.data), sorted(set(args.dims))
    tasks = {task.task.name: task for task in open_tasks(args.tasks)}
    configs = {folder: _config(folder, tasks) for folder in args.runs}
    _check_one_model(configs)
    gpu = torch.cuda.is_available() and devices.on_gpu(args)
    rows: list[dict[str, Any]] = [{"variant": "before"}]
    for config in configs.values():
        rows[0].setdefault(config["task"], []).append(config["score"])
    with only_one(out):
        for dim in dims:
            decomposed: dict[str, Any] = {"variant": "decomposed", "D": dim}
            again: dict[str, Any] = {"variant": "fine-tuned again", "D": dim}
            planned = []
            for folder, config in configs.items():
                task = tasks[config["task"]]
                made = Job(out / f"{folder.name}-D{dim}", {})
                model = Job(folder, {}).last
                start = decomposition(dim, args)
                start.make(made.last, model, data.folder)
                size = attention_parameters(open_source(made.last).model)
                decomposed["attention_parameters"] = again["attention_parameters"] = size
                decomposed.setdefault(config["task"], []).append(_score(made, task, gpu))
                planned.append((plan(made.folder, task, config["seed"], args), task))
            for values, (_, task) in zip(fine_tune(planned, args), planned, strict=True):
                again.setdefault(task.task.name, []).append(values["scores"]["score"])
            rows += [decomposed, again]
    names = list(dict.fromkeys(config["task"] for config in configs.values()))
    columns = [column("variant", "variant"), column("D", "D", missing="-")]
    columns.append(column("attention parameters", "attention_parameters", ",", "-"))
    block = Block([*columns, *(over_seeds(name, name) for name in names)], rows)
    notes = ["A score is the mean over seeds, with the standard deviation where there are several."]
    table = Table("Collaborative attention: scores of fine-tuned models by D", [block], notes)
    write(args, "collaborative-nlu", table, {"rows": rows})


def _config(folder: Path, tasks: dict[str, TaskFolder]) -> dict[str, Any]:
    """What a finished run says: its task, seed, start and score.

    Raises:
        UserError: it is not finished, or its task is not given, or with other examples.
    """
    config, path = read_job(folder).settings, folder / "scores.json"
    if not path.exists():
        raise UserError(f"{folder} has no scores yet: finish it with fairseq-mhe finetune")
    scores = read_json(path)
    if config["task"] not in tasks:
        raise UserError(f"{folder} is of {config['task']}: name its folder too, in --tasks")
    task = tasks[config["task"]]
    if config["data"] != trained_on(task) or scores["data"] != task.scored:
        raise UserError(
            f"{folder} was trained or scored on other examples than {task.folder} has: name the "
            "folder of its examples in --tasks, or give its finetune command again"
        )
    return {**config, "score": float(scores["scores"]["score"])}


def _check_one_model(configs: dict[Path, dict[str, Any]]) -> None:
    """See that the runs are fine-tunings of one model: else a mean would be of several.

    Raises:
        UserError: they are not.
    """
    first = next(iter(configs))
    for folder, config in configs.items():
        if config["start"] != configs[first]["start"]:
            raise UserError(
                f"{first} and {folder} were fine-tuned from two models, and a score is the mean "
                "over the seeds of one: give a study to each"
            )


def _score(made: Job, task: TaskFolder, gpu: bool) -> float:
    """The task's score of a model as it is."""
    if not made.scores.exists():
        facts = {"model": describe(made.last)}
        write_json(made.scores, {**score_task(made, task, gpu)[1], **facts})
    return float(read_json(made.scores)["score"])

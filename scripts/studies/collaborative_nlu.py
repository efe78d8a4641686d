"""``collaborative-nlu``: task scores by the shared width D (Cordonnier et al. 2020, table 2)."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.cli import run_script
from fairseq_mhe.common.arguments import integer, option, positive_list
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json
from fairseq_mhe.experiments.evaluate import evaluate_language_model
from fairseq_mhe.experiments.run_study import write_report
from fairseq_mhe.experiments.start import make_start
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.report import columns
from fairseq_mhe.report.table import Block, Table, seeds_column
from fairseq_mhe.runs.devices import DeviceOptions, on_gpu
from fairseq_mhe.runs.finetuning import FinetuningRecipe, plan_finetuning
from fairseq_mhe.runs.grid import Jobs
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.pool import run_grid


@dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Decompose fine-tuned models to a shared width D, and fine-tune them again."""

    runs: Sequence[Path] = option((), "runs of finetune", type=Path, nargs="+", required=True)
    epochs: int | None = integer(None, "epochs of fine-tuning (default: the task's)")
    out: Path = option(Path("runs/collaborative-nlu"), "output folder", type=Path)
    dims: Sequence[int] = option((16, 32, 64, 128), "widths D", type=positive_list)
    iterations: int = integer(200, "iterations of the decomposition")


def run(options: Options, command: str) -> None:
    """For each D decompose the models, score them, and fine-tune them again; report all scores."""
    jobs = [read_job(folder) for folder in options.runs]
    if len({job.settings.get("start") for job in jobs}) > 1:
        raise UserError("the --runs start from different models: run a study for each model")
    tasks = [open_task(job.input_path("data")) for job in jobs]
    for job, task in zip(jobs, tasks, strict=True):
        if task.identity != job.settings["data"]:
            raise UserError(f"{job.folder} was fine-tuned on other data than {task.folder} has now")
    recipe = FinetuningRecipe(epochs=options.epochs)
    rows = [line(jobs, variant="before")]
    for dim in sorted(options.dims):
        starts = [decomposed(job, dim, options) for job in jobs]
        tuned = [
            plan_finetuning(start.folder, task, start.seed, options.out, recipe, options)
            for start, task in zip(starts, tasks, strict=True)
        ]
        run_grid(Jobs(jobs=tuned, out=options.out, devices=options, command=command))
        size = attention_parameters(open_source(starts[0].last).model)
        for name, of_name in (("decomposed", starts), ("fine-tuned again", tuned)):
            rows.append(line(of_name, variant=name, D=dim, attention_parameters=size))
    names = dict.fromkeys(task.task.name for task in tasks)
    shown = [*columns.COLLABORATIVE, *(seeds_column(name, name) for name in names)]
    table = Table(
        "Fine-tuned models by D", [Block(shown, rows)], ["Mean ± standard deviation over seeds."]
    )
    path = options.out / "collaborative-nlu.md"
    write_report(table, path, {"rows": rows}, command, on_gpu(options))


def decomposed(job: Job, dim: int, options: Options) -> Job:
    """Return the scored job of a model that is decomposed to the width ``dim``, not trained."""
    start = Job(options.out / f"{job.name}-D{dim}", job.config)
    fit = {"collaborative_dim": dim, "iterations": options.iterations}
    make_start(start.last, "collaborative", fit, job.last, None)
    if not start.metrics.exists():
        write_json(start.metrics, {})  # it counts as trained
    evaluate_language_model(start, None, options)
    return start


def line(jobs: Sequence[Job], **values: Any) -> dict[str, Any]:
    """Return a line of the table: task -> the score of each seed."""
    for job in jobs:
        score = read_json(job.scores)["scores"]["score"]
        values.setdefault(job.settings["task"], []).append(score)
    return values


if __name__ == "__main__":
    sys.exit(run_script("collaborative-nlu", Options, run))

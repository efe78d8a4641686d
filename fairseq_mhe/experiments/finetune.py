"""``fairseq-mhe finetune``: a masked language model on a task, and the task's official score."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.files import output_folder, sha256, write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.common.tables import align
from fairseq_mhe.models.rows import nearest_row
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.finetuning import finetune, open_pretrained, plan_finetuning, predictions
from fairseq_mhe.runs.language_recipes import finetuning
from fairseq_mhe.runs.language_runs import LanguageRun
from fairseq_mhe.runs.metrics import scores

SCORES = "scores.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe finetune``."""
    add = parser.add_argument
    add(
        "task", type=Path, metavar="TASK-DATA", help="a folder of data-prep/glue.sh or superglue.sh"
    )
    told = "a masked language model, stock or ours: a run folder of pretrain, or a checkpoint"
    add("--model", type=Path, required=True, metavar="MODEL", help=told)
    add("--out", type=Path, default=Path("runs/language"), metavar="RUNS", help="folder of runs")
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--epochs", type=positive, metavar="N", help="another number than the recipe's")
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Fine-tune, or go on, predict, score, and name the run folder."""
    data = open_task(args.task)
    folder = args.model / "checkpoints" / "checkpoint_last.pt"
    source = open_pretrained(folder if args.model.is_dir() else args.model, data)
    recipe = finetuning(nearest_row(source.options).name, data.task.name)
    recipe = replace(recipe, epochs=args.epochs or recipe.epochs)
    device = devices.asked_for(args, models=1)
    name = args.model.name if args.model.is_dir() else args.model.stem
    out = output_folder(args.out / f"{name}-{data.task.name}-seed{args.seed}")
    made = plan_finetuning(source, data, recipe, args.seed, out)
    with only_one(out):
        say(f"{out.name}: {made.updates:,} updates {device.describe()}")
        finetune(made, source, data, device)
        _score(made, data)
    print(out)


def _score(run: LanguageRun, data: TaskFolder) -> None:
    """Predict every example, once, write predictions and scores, and print these."""
    path = run.folder / SCORES
    model = sha256(run.checkpoint)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if found.get("model") != model:
        said = predictions(run, data)
        right = {official: data.examples(subset) for subset, official in data.subsets.items()}
        for official, lines in said.items():
            write_json(run.folder / f"predictions.{official}.json", lines)
        counts = {official: len(lines) for official, lines in said.items()}
        values = scores(data.task, said, right)
        found = {"task": data.task.name, "examples": counts, "scores": values, "model": model}
        write_json(path, found)
    examples = ", ".join(f"{count:,} of {name}" for name, count in found["examples"].items())
    rows = [(name, f"{value:.2f}") for name, value in found["scores"].items()]
    print(align((f"{data.task.name}, {examples}", "%"), rows, "markdown", left=(0,)))

"""Plan the fine-tuning of a masked language model on a task, by the options in finetuning.yaml."""

import math
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.checkpoints.checkpoint import checkpoint_path, open_source
from fairseq_mhe.common.arguments import integer
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, output_folder, read_json, sha256, yaml_beside
from fairseq_mhe.models.families import ROBERTA, training_options
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.job import Job, plan_job, read_job, settings_of, with_precision
from fairseq_mhe.runs.recipe_options import Overrides
from fairseq_mhe.runs.recipes import overriding_options
from fairseq_mhe.runs.training import Training


@dataclass(frozen=True, kw_only=True)
class FinetuningRecipe(Overrides):
    """What changes the options of finetuning.yaml."""

    epochs: int | None = integer(None, "epochs of fine-tuning (default: the task's)")


def _task_options(row: str, data: TaskFolder, epochs: int | None) -> Json:
    """Return fairseq-train's options, from finetuning.yaml, for a task and a model of ``row``."""
    task = data.task
    recipes = yaml_beside(__file__, "finetuning.yaml")
    options = {**recipes["every task"], **recipes["forms"][task.form]}
    row_options = recipes["base" if row == "base" else "small rows"]
    options |= {**row_options["default"], **row_options.get(task.name, {})}
    default_epochs = options.pop("epochs")
    examples = data.manifest["lines"]["train"]
    batches = math.ceil(examples / options["batch_size"])  # in an epoch
    updates = batches * (epochs or default_epochs)
    return {
        **options,
        "max_update": updates,
        "total_num_update": updates,
        "save_interval_updates": updates,
        "warmup_updates": max(1, updates * 6 // 100),
        "num_classes": 2 if task.form == ANSWERS else len(task.labels or ["a number"]),
        "regression_target": task.labels is None,
        "valid_subset": ",".join(task.subsets),
    }


def describe(checkpoint: Path) -> Json:
    """Return what fine-tuning needs of a masked language model; UserError for other models."""
    source = open_source(checkpoint)
    if source.family is not ROBERTA:
        raise UserError(
            f"{checkpoint} is a {source.family.stock}, not a roberta: fine-tuning starts from a "
            "masked language model"
        )
    positions = source.model.max_positions()
    options = training_options(source.options) | {"max_positions": positions}
    facts = {"row": source.row, "attention": source.attention, "options": options}
    return {"sha256": sha256(checkpoint), **facts}


def plan_finetuning(
    model: Path,
    data: TaskFolder,
    seed: int,
    out: Path,
    recipe: FinetuningRecipe,
    device: DeviceOptions,
) -> Job:
    """Plan the job that fine-tunes ``model``, a run folder of pretrain or a checkpoint, on a task.

    The run folder lies in ``out``. Raises UserError if the model is not trained to its end, has
    other subwords than the task, or too few positions.
    """
    scores = model / "scores.json"
    if model.is_dir() and not scores.exists():
        raise UserError(
            f"{model} is no finished run of pretrain: give one, or finish its training"
        )
    checkpoint = checkpoint_path(model)
    # scores.json describes a masked model, so that its checkpoint need not be read.
    described = read_json(scores).get("model") if model.is_dir() else None
    facts = described or describe(checkpoint)
    if (model / "config.json").is_file():
        trained_on = read_job(model).settings["data"]
        # The data of a fine-tuned model are a task, which names the text of its subwords "text".
        if data.manifest["text"] != trained_on.get("text", trained_on["fingerprint"]):
            raise UserError(
                f"{data.folder} is not in the subwords of {model}: prepare the task with the "
                "--text that the model was trained on"
            )
    positions = facts["options"]["max_positions"]
    block = data.manifest["block"]
    if block > positions:
        raise UserError(
            f"{data.folder} has examples of up to {block} subwords, but the model has "
            f"{positions} positions: prepare the task with --block {positions}"
        )
    row = facts["row"]
    task = data.task
    task_options = _task_options(row, data, recipe.epochs)
    changes = overriding_options(recipe.overrides)
    training = Training({**facts["options"], **task_options, **changes})
    name = model.resolve().name if model.is_dir() else model.stem
    folder = output_folder(out) / f"{name}-{task.name}-seed{seed}"
    training = with_precision(training, folder, device)
    more = {"task": task.name, "start": facts["sha256"]}
    settings = settings_of(row, facts["attention"], seed, training, data.identity, **more)
    input_paths = {"data": str(data.folder), "start": str(checkpoint.resolve())}
    return plan_job(folder, settings, input_paths)

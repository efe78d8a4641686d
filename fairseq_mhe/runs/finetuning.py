"""How a masked language model is fine-tuned on a task: the recipes, and the run that they make."""

import math
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, sha256
from fairseq_mhe.models.families import ROBERTA, training_options
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CHOICE, WORDS, Task
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.understanding import head_of

#: Learning rate, examples a batch, epochs and weight decay of a model of size base. fairseq's
#: (examples/roberta/config/finetuning): 1e-05 for CoLA and SST-2, 32 sentences of SST-2. SQuAD as
#: it is commonly fine-tuned (Liu et al. 2019, table 10: 48 windows, 2 epochs, weight decay 0.01,
#: here with BERT's 3e-05). ReCoRD has a passage as an example for each of its entities.
_BASE = {
    "cola": (1e-05, 16, 10, 0.1),
    "sst2": (1e-05, 32, 10, 0.1),
    "squad1": (3e-05, 48, 2, 0.01),
    "squad2": (3e-05, 48, 2, 0.01),
    "record": (2e-05, 16, 2, 0.1),
}
_BASE_OTHERS = (2e-05, 16, 10, 0.1)
#: Our own, for the small rows: larger steps, and fewer passes over what is large.
_SMALL, _SMALL_ON_LARGE = (0.0003, 32, 10, 0.1), (0.0003, 32, 3, 0.1)
_LARGE = ("sst2", "qqp", "mnli", "qnli", "record", "squad1", "squad2")


def _recipe(row: str, task: str, examples: int, epochs: int | None) -> dict[str, Any]:
    """fairseq-train's options of a model's row for a task; warm-up over 6% of the updates."""
    if row == "base":
        lr, batch, usual, weight_decay = _BASE.get(task, _BASE_OTHERS)
    else:
        lr, batch, usual, weight_decay = _SMALL_ON_LARGE if task in _LARGE else _SMALL
    updates = math.ceil(examples / batch) * (epochs or usual)
    return {
        "max_update": updates,
        "total_num_update": updates,
        "warmup_updates": max(1, updates * 6 // 100),
        "lr": [lr],
        "lr_scheduler": "polynomial_decay",
        "optimizer": "adam",
        "adam_betas": "(0.9, 0.98)",
        "adam_eps": 1e-06,
        "weight_decay": weight_decay,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "batch_size": batch,
        "update_freq": [1],
        "save_interval_updates": updates,
        "keep_interval_updates": 1,
        "no_epoch_checkpoints": True,
        "required_batch_size_multiple": 1,
        "num_workers": 0,
    }


def trained_on(data: TaskFolder) -> dict[str, Any]:
    """What a run's settings say of its task's examples."""
    return {"text": data.text, "fingerprint": data.fingerprint, "block": data.block}


def describe(checkpoint: Path) -> dict[str, Any]:
    """What fine-tuning needs to know of a masked language model, as JSON values.

    Raises:
        UserError: the checkpoint cannot be read, or is of another model.
    """
    source = open_source(checkpoint)
    if source.family is not ROBERTA:
        raise UserError(
            f"{checkpoint} is a {source.family.stock}, not a roberta: fine-tuning starts from a "
            "masked language model"
        )
    model: Any = source.model
    return {
        "sha256": sha256(checkpoint),
        "row": source.row,
        "attention": source.attention,
        "options": {**training_options(source.options), "max_positions": model.max_positions()},
    }


def run_name(model: Path, data: TaskFolder, seed: int) -> str:
    """The folder of a model's fine-tuning, by the name of its run folder or checkpoint."""
    name = model.resolve().name if model.is_dir() else model.stem
    return f"{name}-{data.task.name}-seed{seed}"


def plan_finetuning(
    model: Path, data: TaskFolder, seed: int, out: Path, epochs: int | None, precision: str
) -> Job:
    """The run in ``out`` that fine-tunes a run folder of pretrain, or a checkpoint, on a task.

    No checkpoint is read of a run folder. ``epochs``: another number than the recipe's.

    Raises:
        UserError: the model is not trained to its end, is no masked language model, or has fewer
            positions than examples may have subwords; or the folder has other settings.
    """
    trained = Job(model, {})
    if not model.is_dir():
        checkpoint, facts = model, describe(model)
    elif trained.scores.exists():
        checkpoint, facts = trained.last, read_json(trained.scores)["model"]
    else:
        raise UserError(
            f"{model} is no finished run: give the command that trains it again, which resumes"
        )
    positions = facts["options"]["max_positions"]
    if data.block > positions:
        raise UserError(
            f"{data.folder} has examples of up to {data.block} subwords, the model {positions} "
            f"positions: prepare the task with --block {positions}"
        )
    recipe = _recipe(facts["row"], data.task.name, data.training, epochs)
    options = {**facts["options"], **_options_of(data.task), **recipe}
    training = Training({**options, "valid_subset": ",".join(data.task.subsets)})
    training = training.with_precision(precision)
    own = {"task": data.task.name, "start": facts["sha256"]}
    row, attention = facts["row"], facts["attention"]
    settings = settings_of(row, attention, seed, training, trained_on(data), **own)
    places = {"data": str(data.folder), "start": str(checkpoint.resolve())}
    return plan_job(out / run_name(model, data, seed), settings, places)


def _options_of(task: Task) -> dict[str, Any]:
    """fairseq-train's options of a task."""
    options: dict[str, Any] = {
        "num_classes": 2 if task.form == ANSWERS else len(task.labels or "1"),
        "init_token": 0,
        "separator_token": 2,
        "find_unused_parameters": True,  # the language model's head gets no gradient
        "regression_target": task.labels is None,
    }
    if task.form == CHOICE:
        return {**options, "task": "sentence_ranking", "criterion": "sentence_ranking"}
    by_words = task.form == WORDS
    options["task"] = "sentence_prediction_of_words" if by_words else "sentence_prediction"
    options["criterion"] = "answer_span" if task.form == ANSWERS else "sentence_prediction"
    return {**options, "classification_head_name": head_of(task.form)}

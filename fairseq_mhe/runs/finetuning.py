"""How a masked language model is fine-tuned on a task: the recipes, and the run that they make."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.models.families import ROBERTA
from fairseq_mhe.models.rows import nearest_row, training_options
from fairseq_mhe.prepare.data_folder import model_dictionary
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CHOICE, WORDS, Task
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.predictions import head_of
from fairseq_mhe.runs.recipes import Training


@dataclass(frozen=True)
class Finetuning:
    """``epochs`` over a task in batches of ``batch`` examples; warm-up over 6% of the updates."""

    lr: float
    batch: int
    epochs: int
    weight_decay: float = 0.1

    def options(self, examples: int) -> dict[str, Any]:
        """fairseq-train's options for a task of so many examples."""
        updates = -(-examples // self.batch) * self.epochs
        return {
            "max_update": updates,
            "total_num_update": updates,
            "warmup_updates": max(1, updates * 6 // 100),
            "lr": [self.lr],
            "lr_scheduler": "polynomial_decay",
            "optimizer": "adam",
            "adam_betas": "(0.9, 0.98)",
            "adam_eps": 1e-06,
            "weight_decay": self.weight_decay,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "batch_size": self.batch,
            "update_freq": [1],
            "save_interval_updates": updates,
            "keep_interval_updates": 1,
            "no_epoch_checkpoints": True,
            "required_batch_size_multiple": 1,
            "num_workers": 0,
        }


#: fairseq's (examples/roberta/config/finetuning): 1e-05 for CoLA and SST-2, 32 sentences of SST-2.
#: SQuAD as it is commonly fine-tuned (Liu et al. 2019, table 10: 48 windows, 2 epochs, weight decay
#: 0.01, here with BERT's 3e-05).
_BASE = {
    "cola": Finetuning(1e-05, 16, 10),
    "sst2": Finetuning(1e-05, 32, 10),
    "squad1": Finetuning(3e-05, 48, 2, 0.01),
    "squad2": Finetuning(3e-05, 48, 2, 0.01),
    # A passage is an example for each of its entities.
    "record": Finetuning(2e-05, 16, 2),
    "": Finetuning(2e-05, 16, 10),
}
#: Our own, for the small rows: larger steps, and fewer passes over what is large.
_LARGE = ("sst2", "qqp", "mnli", "qnli", "record", "squad1", "squad2")


def finetuning(row: str, task: str, epochs: int | None = None) -> Finetuning:
    """The recipe of a model's row for a task; ``epochs``: another number than the recipe's."""
    if row == "base":
        found = _BASE.get(task, _BASE[""])
    else:
        found = Finetuning(0.0003, 32, 3 if task in _LARGE else 10)
    return replace(found, epochs=epochs or found.epochs)


def open_pretrained(checkpoint: Path, data: TaskFolder) -> Source:
    """The model to fine-tune.

    Raises:
        UserError: it is no masked language model, has fewer positions than examples may be long, or
            its vocabulary is not that of the task's data.
    """
    source = open_source(checkpoint)
    if source.family is not ROBERTA:
        raise UserError(
            f"{checkpoint} is a {source.family.stock}, not a roberta: fine-tuning starts from a "
            "masked language model"
        )
    positions = _positions(source)
    if data.block > positions:
        raise UserError(
            f"{data.folder} has examples of up to {data.block} subwords, the model {positions} "
            f"positions: prepare the task with --block {positions}"
        )
    words = len(model_dictionary(data.binary / "input0" / "dict.txt", masked=True))
    if source.words != (words,):
        raise UserError(
            f"{data.folder} does not belong to {checkpoint}: its dictionary has {words} words with "
            f"the special ones, the model {source.words[0]}; prepare the task with --text of the "
            "data that the model was trained on"
        )
    return source


def _positions(source: Source) -> int:
    model: Any = source.model
    found: int = model.max_positions()
    return found


def trained_on(data: TaskFolder) -> dict[str, Any]:
    """What a run's settings say of its task's examples."""
    return {"text": data.text, "train": data.fingerprint, "block": data.block}


def plan_finetuning(
    folder: Path, source: Source, data: TaskFolder, recipe: Finetuning, seed: int, precision: str
) -> Job:
    """The run of a model, task and seed.

    Raises:
        UserError: the folder has other settings.
    """
    options = {**training_options(source.options), **_asked(data.task)}
    options |= {"max_positions": _positions(source), "valid_subset": ",".join(data.subsets)}
    training = Training({**options, **recipe.options(data.training)}).with_precision(precision)
    attention = {place: source.attention[place] for place in ROBERTA.places}
    facts = {"task": data.task.name, "start": sha256(source.path)}
    row = nearest_row(source.options).name
    settings = settings_of(row, attention, seed, training, trained_on(data), **facts)
    return plan_job(
        folder, settings, {"data": str(data.folder), "start": str(source.path.resolve())}
    )


def _asked(task: Task) -> dict[str, Any]:
    """fairseq's options of what a task asks for."""
    classes = 2 if task.form == ANSWERS else len(task.labels or "1")
    options: dict[str, Any] = {"num_classes": classes, "init_token": 0, "separator_token": 2}
    # The language model's head gets no gradient.
    options |= {"find_unused_parameters": True, "regression_target": task.labels is None}
    if task.form == CHOICE:
        return {**options, "task": "sentence_ranking", "criterion": "sentence_ranking"}
    by_words = task.form == WORDS
    options["task"] = "sentence_prediction_of_words" if by_words else "sentence_prediction"
    options["criterion"] = "answer_span" if task.form == ANSWERS else "sentence_prediction"
    return {**options, "classification_head_name": head_of(task.form)}

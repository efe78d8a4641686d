"""Fine-tune a masked language model on a task."""

from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.models.families import ROBERTA
from fairseq_mhe.models.rows import nearest_row, training_flags
from fairseq_mhe.prepare.data_folder import model_dictionary
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CHOICE, WORDS
from fairseq_mhe.runs import precision
from fairseq_mhe.runs.language_recipes import Finetuning
from fairseq_mhe.runs.language_runs import LanguageRun, Training
from fairseq_mhe.runs.predictions import head_of


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


def plan_finetuning(
    source: Source, data: TaskFolder, recipe: Finetuning, seed: int, folder: Path, numbers: str
) -> LanguageRun:
    """The run of a model, task and seed; ``numbers``: the precision of its training."""
    settings = {
        "task": data.task.name,
        "data": trained_on(data),
        "start": sha256(source.path),
        "attention": source.attention["encoder"],
        "row": nearest_row(source.options).name,
        "recipe": vars(recipe),
        "seed": seed,
        "precision": numbers,
    }
    return LanguageRun(folder, settings, recipe.updates(data.training))


def trained_on(data: TaskFolder) -> dict[str, Any]:
    """What a run's settings say of its task's examples."""
    return {"text": data.text, "train": data.fingerprint, "block": data.block}


def finetuning_of(run: LanguageRun, source: Source, data: TaskFolder) -> Training:
    """What trains a run of `plan_finetuning`."""
    recipe, task = Finetuning(**run.settings["recipe"]), data.task
    words = [str(data.binary), *_asked(task.form), *training_flags(source.options)]
    classes = 2 if task.form == ANSWERS else len(task.labels or "1")
    words += ["--num-classes", str(classes), "--init-token", "0"]
    words += ["--separator-token", "2", "--max-positions", str(_positions(source))]
    words += ["--regression-target"] if task.labels is None else []
    words += ["--valid-subset", ",".join(data.subsets), "--seed", str(run.settings["seed"])]
    words += ["--finetune-from-model", str(source.path.resolve()), *recipe.flags(data.training)]
    # The language model's head gets no gradient.
    words += ["--find-unused-parameters", *precision.flags(run.precision)]
    return Training(run, words, interval=run.updates, batch=recipe.batch, most=recipe.batch)


def _asked(form: str) -> list[str]:
    """fairseq's options of what a form of tasks asks for."""
    if form == CHOICE:
        return ["--task", "sentence_ranking", "--criterion", "sentence_ranking"]
    task = "sentence_prediction_of_words" if form == WORDS else "sentence_prediction"
    criterion = "answer_span" if form == ANSWERS else "sentence_prediction"
    head = ["--classification-head-name", head_of(form)]
    return ["--task", task, "--criterion", criterion, *head]

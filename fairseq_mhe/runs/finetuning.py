"""Fine-tune a masked language model on a task, and score every example of its scored sets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils

from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.models.families import ROBERTA
from fairseq_mhe.models.rows import nearest_row, training_flags
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.task_folder import TRAIN, TaskFolder
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.language_recipes import Finetuning
from fairseq_mhe.runs.language_runs import LanguageRun

HEAD = "sentence_classification_head"
_SCORED_AT_ONCE = 64


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
    dictionary = data.binary / "input0" / "dict.txt"
    with dictionary.open(encoding="utf-8") as lines:
        words = sum(1 for _ in lines) + 4 + 1  # fairseq's special symbols, and <mask>
    if (words,) != source.words:
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
    source: Source, data: TaskFolder, recipe: Finetuning, seed: int, folder: Path
) -> LanguageRun:
    """The run of a model, task and seed."""
    settings = {
        "task": data.task.name,
        "data": {"text": data.text, "train": data.fingerprint, "block": data.block},
        "start": sha256(source.path),
        "attention": source.attention["encoder"],
        "row": nearest_row(source.options).name,
        "recipe": vars(recipe),
        "seed": seed,
    }
    return LanguageRun(folder, settings, recipe.updates(_examples(data)))


def _examples(data: TaskFolder) -> int:
    """How many training examples there are."""
    lines: int = read_manifest(data.folder)["lines"][TRAIN]
    return lines


def finetune(run: LanguageRun, source: Source, data: TaskFolder, device: Device) -> None:
    """Train the run, or go on with it.

    Raises:
        UserError: as `LanguageRun.train`.
    """
    recipe, task = Finetuning(**run.settings["recipe"]), data.task
    words = [str(data.binary), "--task", "sentence_prediction", *training_flags(source.options)]
    words += ["--criterion", "sentence_prediction", "--classification-head-name", HEAD]
    words += ["--num-classes", str(len(task.labels or "1")), "--init-token", "0"]
    words += ["--separator-token", "2", "--max-positions", str(_positions(source))]
    words += ["--regression-target"] if task.labels is None else []
    words += ["--valid-subset", ",".join(data.subsets), "--seed", str(run.settings["seed"])]
    words += ["--finetune-from-model", str(source.path.resolve()), *recipe.flags(_examples(data))]
    # The language model's head gets no gradient.
    words += ["--find-unused-parameters"]
    run.train(words, device, interval=run.updates)


@torch.inference_mode()
def predictions(run: LanguageRun, data: TaskFolder) -> dict[str, list[str]]:
    """Official name of each scored set -> what the model says of each of its examples, in order.

    Raises:
        UserError: the checkpoint cannot be read.
    """
    place = {"data": str(data.binary)}
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(run.checkpoint)], arg_overrides=place
    )
    model = models[0].eval()
    found = {}
    for subset, official in data.subsets.items():
        task.load_dataset(subset)
        batches = task.get_batch_iterator(
            task.dataset(subset),
            max_sentences=_SCORED_AT_ONCE,
            max_positions=model.max_positions(),
            required_batch_size_multiple=1,
        ).next_epoch_itr(shuffle=False)
        said: dict[int, str] = {}
        for batch in batches:
            said |= _said(model, data, batch)
        found[official] = [said[index] for index in sorted(said)]
    return found


def _said(model: Any, data: TaskFolder, batch: Mapping[str, Any]) -> dict[int, str]:
    """Example -> label, or number."""
    if torch.cuda.is_available() and next(model.parameters()).is_cuda:
        batch = utils.move_to_cuda(batch)
    logits, _ = model(
        **batch["net_input"], features_only=True, classification_head_name=HEAD
    )  # (B, classes)
    labels = data.task.labels
    if labels is None:
        values = [f"{value:.6f}" for value in logits[:, 0].float().tolist()]
    else:
        values = [labels[index] for index in logits.argmax(dim=1).tolist()]
    return dict(zip(batch["id"].tolist(), values, strict=True))

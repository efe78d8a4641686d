"""What conversions measure on: sentences that a model reads, and how far a new one is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fairseq_mhe.attention.fitting import Inputs
from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.progress import Board
from fairseq_mhe.convert.difference import LogitDifference, logit_difference, loss
from fairseq_mhe.convert.moments import measure_inputs
from fairseq_mhe.convert.sentences import batches, random_batches, sentence_pairs, task_of
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.prepare.data_folder import open_data

#: Splits that inputs are measured on, and that a loss is computed on.
_MEASURED, _JUDGED = "train", "valid"


@dataclass(frozen=True)
class Material:
    """What is known of a model's data: nothing, or sentences to train on and to validate with."""

    source: Source
    train: Sequence[dict[str, Any]]
    valid: Sequence[dict[str, Any]]
    pad: int
    name: str | None

    @property
    def sentences(self) -> int:
        """How many the inputs are measured on."""
        return sum(len(batch["id"]) for batch in self.train)

    def inputs(self) -> dict[str, Inputs]:
        """What each sublayer of the source reads, by its name."""
        model = self.source.model
        if not self.train:
            return {name: Inputs.unknown(module) for name, _, module in sublayers(model)}
        bar = "measuring inputs"
        with Board("batches", transient=True) as board:
            board.add(bar, len(self.train))
            return measure_inputs(model, self.train, self.pad, lambda: board.advance(bar))

    def loss(self, model: nn.Module) -> float | None:
        """Nats per target token on the validation sentences; None without data."""
        return loss(model, self.valid, self.pad) if self.name else None

    def difference(self, model: nn.Module) -> LogitDifference:
        """How far a model's logits are from the source's, on validation or random sentences."""
        return logit_difference(self.source.model, model, self.valid, self.pad)

    def describe(self) -> str:
        """The sentences that are compared on, in words."""
        return f"{_JUDGED} of {self.name}" if self.name else "random words"


def open_material(source: Source, data: Path | None, sentences: int) -> Material:
    """The first ``sentences`` pairs of a folder's train and valid, or random words without one.

    Raises:
        UserError: the data cannot be read, or do not belong to the model.
    """
    if data is None:
        task = source.task()
        return Material(source, [], random_batches(task), task.target_dictionary.pad(), None)
    task = task_of(open_data(data), source)
    train, valid = (
        batches(task, subset, sentence_pairs(task, subset, sentences))
        for subset in (_MEASURED, _JUDGED)
    )
    return Material(source, train, valid, task.target_dictionary.pad(), str(data))

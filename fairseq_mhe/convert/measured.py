"""The measurements that conversions share: what a model reads on a data folder, and how far a new model is from it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from torch import nn

from fairseq_mhe.attention.fitting import Inputs
from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.convert.compare import LogitDifference, logit_difference, loss
from fairseq_mhe.convert.moments import measure_inputs
from fairseq_mhe.convert.sentences import batches, random_batches, sentence_pairs, task_of
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.prepare.data_folder import open_data

#: Splits that inputs are measured on, and that a loss is computed on.
MEASURED, JUDGED = "train", "valid"


@dataclass(frozen=True)
class Material:
    """What is known of a model's data: nothing, or sentences of its training and validation sets."""

    source: Source
    train: Sequence[dict[str, Any]]
    valid: Sequence[dict[str, Any]]
    pad: int
    name: str | None

    def inputs(self, console: Console) -> dict[str, Inputs]:
        """What each sublayer of the source reads, by its name."""
        if not self.train:
            return {
                name: Inputs.unknown(module) for name, _, module in sublayers(self.source.model)
            }
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("measuring inputs", total=len(self.train))
            return measure_inputs(
                self.source.model, self.train, self.pad, lambda: progress.advance(bar)
            )

    def loss(self, model: nn.Module) -> float | None:
        """Nats per target token on the validation sentences; None without data."""
        return loss(model, self.valid, self.pad) if self.name else None

    def difference(self, model: nn.Module) -> LogitDifference:
        """How far a model's logits are from the source's, on the validation sentences or on random words."""
        return logit_difference(self.source.model, model, self.valid, self.pad)

    def describe(self) -> str:
        """The sentences that are compared on, in words."""
        return f"{JUDGED} of {self.name}" if self.name else "random words"


def open_material(source: Source, data: Path | None, sentences: int) -> Material:
    """The first ``sentences`` pairs of a data folder's training and validation sets, or random words without one.

    Raises:
        UserError: the data cannot be read, or do not belong to the model.
    """
    if data is None:
        task = source.task()
        return Material(source, [], random_batches(task), task.target_dictionary.pad(), None)
    task = task_of(open_data(data), source)
    train, valid = (
        batches(task, subset, sentence_pairs(task, subset, sentences))
        for subset in (MEASURED, JUDGED)
    )
    return Material(source, train, valid, task.target_dictionary.pad(), str(data))


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what a conversion is fitted to and judged on."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DATA",
        help="data folder: errors count as they do on its training sentences, and the loss is measured",
    )
    parser.add_argument(
        "--sentences",
        type=positive,
        default=1000,
        metavar="N",
        help="pairs of each of its splits (default: %(default)s)",
    )

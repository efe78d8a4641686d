"""What determines a trained model: fairseq-train's options, and the numbers they imply."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json
from fairseq_mhe.models.architectures import MODEL_NAME
from fairseq_mhe.models.graphs import option_without_graphs
from fairseq_mhe.models.language_models import CAUSAL
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.processes import OWN_USER_DIR

#: max_tokens counts tokens, batch_size examples; with fewer than the smallest number long
#: sentences do not fit.
UNITS = {"max_tokens": ("tokens", 256), "batch_size": ("examples", 1)}
#: Options that count updates: fairseq's schedules ("deacy" is its spelling) and intervals.
_SCALED = (
    "warmup_updates",
    "lr_period_updates",
    "lr_deacy_period",
    "warmup_steps",
    "hold_steps",
    "decay_steps",
    "save_interval_updates",
    "validate_interval_updates",
)
#: Checkpoints to average if a recipe keeps all of them.
_AVERAGE_OF_ALL = 5
#: Options that the commands set for each training of a recipe.
OF_EACH_TRAINING = ("seed", "attention", *PLACES.values())
_WITH_DECODERS = (MODEL_NAME, CAUSAL)  # prefixes of architectures
#: fairseq's criterions of which this package has a faster form.
_CRITERIONS = ("label_smoothed_cross_entropy", "masked_lm", "cross_entropy")


@dataclass(frozen=True)
class Training:
    """What determines a model: fairseq-train's options by name, for one device, without paths."""

    options: Mapping[str, Any]

    def changed(self, **options: Any) -> Training:
        """Return a copy with these options replaced, or removed where the new value is None."""
        merged = {**self.options, **options}
        kept = {name: value for name, value in merged.items() if value is not None}
        return Training(kept)

    @property
    def recipe_options(self) -> Json:
        """The options but for those of one training, its kind of attention and seed."""
        kept = [name for name in self.options if name not in OF_EACH_TRAINING]
        return {name: self.options[name] for name in kept}

    @property
    def updates(self) -> int:
        return int(self.options["max_update"])

    @property
    def precision(self) -> str:
        """float32, bf16 or fp16."""
        if self.options.get("bf16"):
            return "bf16"
        return "fp16" if self.options.get("fp16") else "float32"

    def with_precision(self, precision: str) -> Training:
        """Return a copy that trains in float32, bf16 or fp16."""
        bf16 = precision == "bf16" or None
        fp16 = precision == "fp16" or None
        return self.changed(bf16=bf16, fp16=fp16)

    @property
    def patience(self) -> int:
        """Validations (one an epoch) without a lower loss after which training ends; 0: never."""
        return max(0, int(self.options.get("patience", 0)))

    @property
    def average(self) -> int:
        """Number of last checkpoints that are averaged.

        A recipe keeps one more, in case the newest is damaged. If it keeps all (fairseq's default),
        the last five are averaged.
        """
        by_epochs = self.patience and not self.options.get("no_epoch_checkpoints")
        if by_epochs or not self.options.get("save_interval_updates"):
            kept = int(self.options.get("keep_last_epochs", -1))
        else:
            kept = int(self.options.get("keep_interval_updates", -1))
        return _AVERAGE_OF_ALL if kept <= 0 else max(1, kept - 1)

    @property
    def batch_tokens(self) -> int:
        """Tokens (examples, if the recipe sets batch_size) of one update, on all devices."""
        (update_freq,) = self.options.get("update_freq", [1])
        return self.mini_batch * int(update_freq)

    @property
    def mini_batch(self) -> int:
        """Tokens or examples that one device computes at a time."""
        return int(self.options[self._size_option])

    @property
    def batch(self) -> str:
        """The size of one update, such as "32,768 tokens"."""
        unit, _ = UNITS[self._size_option]
        size = f"{self.batch_tokens:,} {unit}"
        if self._most_examples:
            size += f" (a mini-batch has at most {self._most_examples} examples)"
        return size

    @property
    def _most_examples(self) -> int:
        """The most examples of a mini-batch that max_tokens limits, too; 0: no such limit."""
        both = UNITS.keys() <= self.options.keys()
        return int(self.options["batch_size"]) if both else 0

    @property
    def _size_option(self) -> str:
        return next(name for name in UNITS if name in self.options)

    def shortened(self, updates: int) -> Training:
        """Return a copy for other ``updates``; without patience, schedule and intervals scale."""
        changes = {"max_update": updates}
        scaled = () if self.patience else _SCALED
        for name in ("total_num_update", *scaled):
            count = int(self.options.get(name, 0))
            if count > 0:  # else it is off
                changes[name] = max(1, count * updates // self.updates)
        return self.changed(**changes)

    def part(self, share: float) -> Training:
        """Return a copy for a share of the updates that averages as many checkpoints; 0: none."""
        if share == 1:
            return self
        # With patience `shortened` would keep the whole warm-up.
        training = self.changed(patience=None)
        if not share:
            return training.changed(max_update=0)
        count = max(1, round(share * self.updates))
        interval = max(1, count // (self.average + 2))
        return (
            training.changed(keep_last_epochs=None)
            .shortened(count)
            .changed(
                save_interval_updates=interval,
                validate_interval_updates=interval,
                keep_interval_updates=self.average + 1,
                save_interval=10**6,  # epochs: never
                validate_interval=10**6,
                no_epoch_checkpoints=True,
            )
        )

    def batched(self, batch: int | None = None, largest: int | None = None) -> Training:
        """Return a copy with another batch in mini-batches of at most ``largest``, or UserError."""
        return self.changed(**self.shared_by(1, batch, largest))

    def shared_by(
        self, workers: int, batch: int | None = None, largest: int | None = None
    ) -> Json:
        """Return the options of mini-batch and update_freq on ``workers`` devices, or UserError.

        If a recipe limits tokens and examples of a mini-batch, both shrink alike.
        """
        unit, smallest = UNITS[self._size_option]
        mini_batch, most_examples = self.mini_batch, self._most_examples
        batch = batch or self.batch_tokens
        largest = min(largest or mini_batch, batch)
        smallest = min(smallest, largest)
        for size in range(largest, smallest - 1, -1):
            examples, rest = divmod(most_examples * size, mini_batch)
            if rest or batch % (workers * size):
                continue
            shared = {self._size_option: size, "update_freq": [batch // workers // size]}
            return {**shared, "batch_size": examples} if examples else shared
        sizes = f"{smallest:,} to {largest:,}" if smallest < largest else f"{largest:,}"
        problem = (
            f"an update of {batch:,} {unit} is no multiple of {workers} x {sizes} {unit}"
        )
        advice = f"change the batch, the mini-batch ({self._size_option}) or the devices"
        raise UserError(f"{problem} (devices x mini-batch): {advice}")

    def words(self, workers: int = 1) -> list[str]:
        """Return fairseq-train's arguments, with CUDA graphs, faster Adam and loss if possible."""
        options = {**self.options, **self.shared_by(workers)}
        # A kind of attention in the user's own --user-dir may do what a graph cannot replay.
        own_kinds = OWN_USER_DIR in os.environ
        has_decoder = options["arch"].startswith(_WITH_DECODERS)
        one_gpu = workers == 1 and torch.cuda.is_available()
        if one_gpu and has_decoder and not (own_kinds or option_without_graphs(options)):
            options.setdefault("cuda_graphs", True)
        if options.get("optimizer") == "adam":
            options["optimizer"] = optimizer_for(self.precision)
        if options.get("criterion") in _CRITERIONS:
            options["criterion"] = criterion_for(self.precision, options["criterion"])
        return as_words(options)

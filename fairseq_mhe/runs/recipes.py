"""Recipes: YAML files that fairseq-hydra-train reads, as fairseq-train's options; prints them."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import fairseq_mhe
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, check_input
from fairseq_mhe.models.architectures import MODEL_NAME, ROWS, SMALL_ROWS
from fairseq_mhe.models.graphs import changing
from fairseq_mhe.models.language_models import CAUSAL
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.processes import OWN_USER_DIR

#: The recipes that come with the package, one file a row.
FOLDER = Path(fairseq_mhe.__file__).parent / "recipes"
#: The recipes of translation.
NAMES = (*ROWS, *SMALL_ROWS)
#: Groups of a recipe that hold no option of fairseq-train.
_OTHER_GROUPS = ("hydra", "defaults", "generation")
#: Options that depend on where a training runs; commands set them.
_PLACES = ("data", "user_dir", "save_dir", "distributed_world_size", "cpu")
#: How the architectures of models begin that CUDA graphs serve.
_WITH_DECODERS = (MODEL_NAME, CAUSAL)
#: fairseq's losses that have a faster form of ours.
_LOSSES = ("label_smoothed_cross_entropy", "masked_lm", "cross_entropy")
#: What wrong types and wrong text in a recipe raise.
_MISREAD = (AttributeError, TypeError, ValueError)
#: The two options that size a mini-batch -> the unit, and the least that a device takes: long
#: sentences have to fit.
_UNITS = {"max_tokens": ("tokens", 256), "batch_size": ("examples", 1)}


@dataclass(frozen=True)
class Training:
    """What makes a model: fairseq-train's options on one device, without places, by name."""

    options: Mapping[str, Any]

    def changed(self, **options: Any) -> Training:
        """The same with other values; None leaves an option out."""
        both = {**self.options, **options}
        return Training(
            {name: value for name, value in both.items() if value is not None}
        )

    @property
    def updates(self) -> int:
        return int(self.options["max_update"])

    @property
    def precision(self) -> str:
        """float32, bf16 or fp16."""
        return next(
            (name for name in ("bf16", "fp16") if self.options.get(name)), "float32"
        )

    def with_precision(self, precision: str) -> Training:
        return self.changed(
            **{name: name == precision or None for name in ("bf16", "fp16")}
        )

    @property
    def patience(self) -> int:
        """Validations (one an epoch) without a lower loss that end the training; 0: none do."""
        return int(self.options.get("patience", 0))

    @property
    def average(self) -> int:
        """How many of the last checkpoints are averaged: all that are kept but one."""
        kept = "keep_last_epochs" if self.patience else "keep_interval_updates"
        return max(1, int(self.options.get(kept) or 0) - 1)

    @property
    def interval(self) -> int:
        """Updates between two checkpoints."""
        return int(
            self.options.get("save_interval_updates") or max(1, self.updates // 100)
        )

    @property
    def batch_tokens(self) -> int:
        """Tokens of one update (of a language model's training: examples), on all devices."""
        return self.mini_batch * int(self.options.get("update_freq", [1])[0])

    @property
    def mini_batch(self) -> int:
        """Tokens or examples that one device takes at a time at most."""
        return int(self.options[self._size])

    @property
    def _size(self) -> str:
        return next(name for name in _UNITS if name in self.options)

    def shortened(self, updates: int) -> Training:
        """The same over other updates: the warm-up keeps its share, unless patience may end it."""
        changes = {"max_update": updates}
        if "total_num_update" in self.options:
            changes["total_num_update"] = updates
        intervals = (
            "warmup_updates",
            "save_interval_updates",
            "validate_interval_updates",
        )
        for name in () if self.patience else intervals:
            if name in self.options:
                changes[name] = max(1, int(self.options[name]) * updates // self.updates)
        return self.changed(**changes)

    def batched(
        self, batch: int | None = None, mini_batch: int | None = None
    ) -> Training:
        """The same with another batch, of which a device takes ``mini_batch``; as `shared_by`."""
        shares = self._shares(
            batch or self.batch_tokens, mini_batch or self.mini_batch, 1
        )
        return self.changed(**shares)

    def shared_by(self, workers: int) -> Json:
        """The options of a mini-batch where so many devices share an update, or UserError."""
        return self._shares(self.batch_tokens, self.mini_batch, workers)

    def _shares(self, batch: int, most: int, workers: int) -> Json:
        """What a device takes at a time, at most ``most``, and how many times an update."""
        unit, least = _UNITS[self._size]
        most = min(most, batch)
        least = min(least, most)

        def mini_batch(devices: int) -> int:
            """The largest mini-batch; 0 if so many devices cannot share the update evenly."""
            sizes = range(most, least - 1, -1)
            return next((size for size in sizes if batch % (devices * size) == 0), 0)

        if size := mini_batch(workers):
            return {self._size: size, "update_freq": [batch // workers // size]}
        fitting = ", ".join(str(n) for n in range(1, 65) if mini_batch(n))
        devices = f"{fitting} devices, or " if fitting else ""
        raise UserError(
            f"an update of {batch:,} {unit} in mini-batches of {least:,} to {most:,} cannot be "
            f"shared evenly by {workers} devices: take {devices}another batch"
        )

    def words(self, workers: int = 1) -> list[str]:
        """fairseq-train's words on so many devices; Adam, losses, graphs: what is faster there."""
        options = {**self.options, **self.shared_by(workers)}
        if _by_graphs(options, workers):
            options.setdefault("cuda_graphs", True)
        if options.get("optimizer") == "adam":
            options["optimizer"] = optimizer_for(self.precision)
        if options.get("criterion") in _LOSSES:
            options["criterion"] = criterion_for(self.precision, options["criterion"])
        return as_words(options)


def _by_graphs(options: Json, workers: int) -> bool:
    """Whether CUDA graphs serve a training: on one GPU, of a model with a decoder."""
    if workers > 1 or not torch.cuda.is_available() or changing(options):
        return False
    # Kinds of a user's own may do what a graph cannot repeat.
    return options["arch"].startswith(_WITH_DECODERS) and OWN_USER_DIR not in os.environ


@dataclass(frozen=True)
class Recipe:
    row: str
    training: Training
    decoding: Decoding


def recipe(name: str, known: Collection[str] = NAMES) -> Recipe:
    """A recipe of the package, in capitals or not (4L, 12H); raises UserError for other names."""
    if name.lower() not in known:
        raise UserError(f"unknown row {name!r}; choose one of: {', '.join(known)}")
    return read_recipe(FOLDER / f"{name.lower()}.yaml")


def read_recipe(path: Path) -> Recipe:
    """The recipe of a file, whose name is its row; raises UserError where it is none."""
    check_input(path, "give the path of a recipe (a .yaml file)")
    try:
        groups: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
        options = dict(_options(groups))
        decoding = Decoding(**(groups.get("generation") or {}))
    except (OmegaConfBaseException, yaml.YAMLError, *_MISREAD) as error:
        problem = "is no recipe, which fairseq-hydra-train reads too"
        raise UserError(f"{path} {problem}: {error}") from None
    needed = {"arch": "model._name", "dropout": "model.dropout"}
    needed |= {"max_update": "optimization.max_update"}
    if not _UNITS.keys() & options.keys():
        needed["max_tokens"] = "dataset.max_tokens"
    for name, place in needed.items():
        if name not in options:
            raise UserError(f"{path} has no {place}: add it")
    training = Training(options)
    try:
        smallest = min(training.updates, training.batch_tokens)
    except _MISREAD:
        smallest = 0
    if smallest < 1:
        numbers = "max_update, max_tokens (or batch_size) and the list update_freq"
        raise UserError(f"{path}: {numbers} must be whole numbers of at least 1")
    # Large batches are for GPUs, which decode large ones too.
    if training.mini_batch >= 4096:
        decoding = replace(decoding, max_tokens=4096)
    return Recipe(path.stem.lower(), training, decoding)


def _options(groups: Json) -> Iterator[tuple[str, Any]]:
    """fairseq-train's options of a recipe's groups."""
    for group, values in groups.items():
        if group in _OTHER_GROUPS:
            continue
        chosen = "arch" if group == "model" else group
        named = {"_name": values} if isinstance(values, str) else values
        for name, value in named.items():
            if name not in _PLACES and value is not None:
                yield (chosen if name == "_name" else name), value


def add_arguments(parser: ArgumentParser) -> None:
    """Options of ``fairseq-mhe recipe``."""
    help_ = f"{', '.join(_names())}; or a YAML file of your own"
    parser.add_argument("name", metavar="NAME", help=help_)
    help_ = "print the YAML, to be changed and given as --recipe FILE"
    parser.add_argument("--yaml", action="store_true", help=help_)


def _names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def run(args: Namespace) -> None:
    """Print the command line; DATA/bin, the kind of attention and the seed are the user's."""
    own = args.name.endswith((".yaml", ".yml"))
    chosen = read_recipe(Path(args.name)) if own else recipe(args.name, _names())
    if args.yaml:
        path = Path(args.name) if own else FOLDER / f"{chosen.row}.yaml"
        print(path.read_text("utf-8"), end="")
        return
    usual = "--user-dir fairseq_mhe --attention mhe_mul --seed 1"
    print(f"fairseq-train DATA/bin {usual} {shlex.join(chosen.training.words())}")

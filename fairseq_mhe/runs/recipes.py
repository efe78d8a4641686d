"""Read recipes, which are YAML files for fairseq-hydra-train, as options of fairseq-train."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
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
from fairseq_mhe.models.architectures import MODEL_NAME, ROWS
from fairseq_mhe.models.graphs import option_without_graphs
from fairseq_mhe.models.language_models import CAUSAL
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.processes import OWN_USER_DIR

#: The folder of the package's recipes, one file for each row.
FOLDER = Path(fairseq_mhe.__file__).parent / "recipes"
#: Names of the translation recipes, and of all recipes.
NAMES = tuple(ROWS)
_ALL_NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
#: Groups of a recipe that hold no options of fairseq-train.
_OTHER_GROUPS = ("hydra", "defaults", "generation")
#: Options that the commands set, since they depend on the machine and its folders.
_SET_BY_COMMANDS = ("data", "user_dir", "save_dir", "distributed_world_size", "cpu")
#: Why a recipe must not set an option -> these options.
_REFUSED = {
    "the command sets it": ("seed", "attention", *PLACES.values()),
    "the data folder sets it": ("source_lang", "target_lang"),
    "bf16 or fp16 does it": ("amp", "memory_efficient_bf16", "memory_efficient_fp16"),
    "max_update ends training": ("max_epoch", "stop_time_hours", "stop_min_lr"),
    "sharded checkpoints are not supported": ("checkpoint_suffix", "use_sharded_state"),
    "a run resumes from checkpoint_last.pt": ("no_save", "no_last_checkpoints"),
}
_WITH_DECODERS = (MODEL_NAME, CAUSAL)  # prefixes of architectures
#: fairseq's criterions of which this package has a faster form.
_CRITERIONS = ("label_smoothed_cross_entropy", "masked_lm", "cross_entropy")
_WRONG_VALUE = (AttributeError, TypeError, ValueError)  # of wrong types
#: Option of the mini-batch size -> its unit, and the smallest size that still fits long sentences.
_UNITS = {"max_tokens": ("tokens", 256), "batch_size": ("examples", 1)}


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
        """Number of last checkpoints that are averaged: all kept checkpoints but one."""
        epochs = int(self.options.get("keep_last_epochs", 0))
        if self.patience and epochs > 0:
            return max(1, epochs - 1)
        return max(1, int(self.options.get("keep_interval_updates", 0)) - 1)

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
        unit, _ = _UNITS[self._size_option]
        return f"{self.batch_tokens:,} {unit}"

    @property
    def _size_option(self) -> str:
        return next(name for name in _UNITS if name in self.options)

    def shortened(self, updates: int) -> Training:
        """Return a copy for other ``updates``; without patience, warm-up and intervals scale."""
        changes = {"max_update": updates}
        intervals = ("save_interval_updates", "validate_interval_updates")
        scaled = () if self.patience else ("warmup_updates", *intervals)
        for name in ("total_num_update", *scaled):
            if count := int(self.options.get(name, 0)):  # 0: off
                changes[name] = max(1, count * updates // self.updates)
        return self.changed(**changes)

    def batched(self, batch: int | None = None, largest: int | None = None) -> Training:
        """Return a copy with another batch in mini-batches of at most ``largest``, or UserError."""
        return self.changed(**self.shared_by(1, batch, largest))

    def shared_by(
        self, workers: int, batch: int | None = None, largest: int | None = None
    ) -> Json:
        """Return the options of mini-batch and update_freq on ``workers`` devices, or UserError."""
        unit, smallest = _UNITS[self._size_option]
        batch = batch or self.batch_tokens
        largest = min(largest or self.mini_batch, batch)
        smallest = min(smallest, largest)
        for size in range(largest, smallest - 1, -1):
            if batch % (workers * size) == 0:
                update_freq = batch // workers // size
                return {self._size_option: size, "update_freq": [update_freq]}
        raise UserError(
            f"an update of {batch:,} {unit} in mini-batches of {smallest:,} to {largest:,} cannot "
            f"be shared evenly by {workers} devices: take another number of devices or batch"
        )

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


@dataclass(frozen=True)
class Recipe:
    """How models of a row are trained, and how they translate."""

    row: str
    training: Training
    decoding: Decoding


def recipe(name: str, known: Collection[str] = NAMES) -> Recipe:
    """Return a recipe of the package; capitals do not matter. UserError for an unknown name."""
    if name.lower() not in known:
        raise UserError(f"unknown row {name!r}; choose one of: {', '.join(known)}")
    return read_recipe(FOLDER / f"{name.lower()}.yaml")


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a file, whose name is the row; raises UserError for other files."""
    check_input(path, "give the path of a recipe (a .yaml file)")
    try:
        loaded = OmegaConf.load(path)
        groups: Any = OmegaConf.to_container(loaded, resolve=True)
        options = dict(_options(groups))
        expected = OmegaConf.create({"generation": Decoding})
        OmegaConf.set_readonly(expected.generation, False)  # the class is frozen
        given = groups.get("generation") or {}
        OmegaConf.merge(expected, {"generation": given})  # checks names and types
        decoding = Decoding(**given)
        if not (isfinite(decoding.lenpen) and isfinite(decoding.max_len_a)):
            raise ValueError("lenpen and max_len_a must be finite numbers")
    except (OmegaConfBaseException, yaml.YAMLError, *_WRONG_VALUE) as error:
        problem = "is no recipe in fairseq-hydra-train's form"
        raise UserError(f"{path} {problem}: {error}") from None
    needed = ["model._name", "model.dropout", "optimization.max_update"]
    if not _UNITS.keys() & options.keys():
        needed.append("dataset.max_tokens")
    for key in needed:
        if OmegaConf.select(loaded, key) is None:
            raise UserError(f"{path} has no {key}: add it")
    for reason, names in _REFUSED.items():
        for name in options.keys() & names:
            raise UserError(f"{path} sets {name}: remove it, as {reason}")
    training = Training(options)
    _check_numbers(path, training, decoding)
    # Recipes with large mini-batches are for GPUs, which decode large batches too.
    if training.mini_batch >= 4096 and "max_tokens" not in given:
        decoding = replace(decoding, max_tokens=4096)
    return Recipe(path.stem.lower(), training, decoding)


def _check_numbers(path: Path, training: Training, decoding: Decoding) -> None:
    """Raise UserError if updates, batch or beam are below 1, or hypotheses may have no token."""
    try:
        smallest = min(training.updates, training.batch_tokens)
        smallest = min(smallest, decoding.beam, decoding.max_tokens)
        lengths = decoding.max_len_a, decoding.max_len_a + decoding.max_len_b - 1
    except _WRONG_VALUE:
        smallest = 0
    if smallest < 1:
        numbers = "max_update, max_tokens, batch_size, beam and update_freq ([N])"
        raise UserError(f"{path}: {numbers} must be whole numbers of at least 1")
    if min(lengths) < 0:
        limits = "max_len_a must be at least 0, and max_len_a + max_len_b at least 1"
        raise UserError(f"{path}: {limits}")


def _options(groups: Json) -> Iterator[tuple[str, Any]]:
    """Yield fairseq-train's options in the groups of a recipe."""
    for group, values in groups.items():
        if group in _OTHER_GROUPS:
            continue
        by_name = {"_name": values} if isinstance(values, str) else values
        if not isinstance(by_name, dict):
            raise ValueError(f"{group} is no group of options")
        for name, value in by_name.items():
            if name == "_name":  # model._name is --arch, task._name is --task
                name = "arch" if group == "model" else group
            if name not in _SET_BY_COMMANDS and value is not None:
                yield name, value


def add_arguments(parser: ArgumentParser) -> None:
    """Options of ``fairseq-mhe recipe``."""
    help_ = f"{', '.join(_ALL_NAMES)}; or a YAML file of your own"
    parser.add_argument("name", metavar="NAME", help=help_)
    help_ = "print the recipe's YAML file; change a copy and give it as --recipe FILE"
    parser.add_argument("--yaml", action="store_true", help=help_)


def run(args: Namespace) -> None:
    """Print a recipe's command line, in which users replace DATA/bin, the kind and the seed."""
    own = args.name.endswith((".yaml", ".yml"))
    chosen = read_recipe(Path(args.name)) if own else recipe(args.name, _ALL_NAMES)
    if args.yaml:
        path = Path(args.name) if own else FOLDER / f"{chosen.row}.yaml"
        print(path.read_text("utf-8"), end="")
        return
    package = os.environ.get(OWN_USER_DIR, "fairseq_mhe")
    example = ["DATA/bin", "--user-dir", package, "--attention", "mhe_mul", "--seed", "1"]
    print(shlex.join(["fairseq-train", *example, *chosen.training.words()]))

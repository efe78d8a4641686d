"""The families of models (fairseq's model and ours of the same shape): architectures, options."""

import argparse
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY as ARCHITECTURES
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, register_model_architecture
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mhe.common.errors import UserError, one_clear_line
from fairseq_mhe.models import architectures, graphs, language_models, tasks
from fairseq_mhe.models.architectures import ROWS, Row
from fairseq_mhe.models.configs import plain_options, set_defaults
from fairseq_mhe.models.model import MHEModel
from fairseq_mhe.models.options import check_options, kinds
from fairseq_mhe.models.transformer import TransformerMHEModel


@dataclass(frozen=True)
class Family:
    """fairseq's model of one shape, and our model of the same shape."""

    name: str  # name of our model
    stock: str  # name of fairseq's model
    model: type[MHEModel]
    rows: Mapping[str, Row]  # the key completes the architecture's name, see `arch`
    #: For each dictionary a pattern that matches the names of its embedding weights.
    embeddings: tuple[str, ...]
    task: Callable[..., Any]  # makes a task from the sizes of its dictionaries
    tied: Mapping[str, bool]  # the option that shares embeddings, and its value

    def arch(self, row: str) -> str:
        """Return the ``--arch`` of a row."""
        return f"{self.name}_{row}"

    def vocab_sizes(self, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
        """Return the size of each dictionary; adaptive inputs split its embedding into parts."""
        sizes = []
        for pattern in self.embeddings:
            parts = [w for name, w in weights.items() if re.fullmatch(pattern, name)]
            sizes.append(sum(map(len, parts)))
        return tuple(sizes)

    @functools.cached_property
    def flags(self) -> frozenset[str]:
        """Names of our model's options on fairseq-train's command line."""
        parser = argparse.ArgumentParser()
        self.model.add_args(parser)
        return frozenset(action.dest for action in parser._actions)

    @functools.cached_property
    def option_names(self) -> frozenset[str]:
        """Names of all options of our model, also of those that only architectures set."""
        filled = argparse.Namespace()
        ARCHITECTURES[self.name](filled)
        declared = {field.name for field in fields(self.model.CONFIG)}
        return self.flags | vars(filled).keys() | declared | {"tokens_per_sample"}

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options of our model; ``given`` are options of our model or of fairseq's."""
        filled = argparse.Namespace(**given)
        ARCHITECTURES[given.get("_name") or given["arch"]](filled)
        set_defaults(filled, self.model.CONFIG)
        known = self.option_names
        options = {name: value for name, value in vars(filled).items() if name in known}
        if _model_name(given) == self.stock:
            options |= {"attention": "mha", "attention_bias": True}
        return options

    def kinds(self, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the kind of attention at each place of a model with these options."""
        is_stock = _model_name(options) == self.stock
        given = {"attention": "mha"} if is_stock else options
        chosen = kinds(argparse.Namespace(**given))
        return {place: chosen[place] for place in self.model.PLACES}

    def register(self) -> None:
        """Register each row as an architecture of fairseq; the bare name means the first row."""
        (first, *_) = self.rows.values()
        for name, row in {"": first, **self.rows}.items():
            arch = self.arch(name).removesuffix("_")
            configure = functools.partial(self.configure, row)
            register_model_architecture(self.name, arch)(configure)

    def configure(self, row: Row, args: Any) -> None:
        """Set the options that ``args`` lacks; UserError for unknown or unsuitable ones."""
        with one_clear_line():
            given = vars(plain_options(args))
            # A checkpoint, which has every size, also has the task's options, and the number of
            # GPUs that it was trained on.
            if not row.options().keys() <= given.keys():
                graphs.check_command_line(given)
                if isinstance(args, DictConfig):  # fairseq's parser checks a command line
                    self.check_names(given)
            values = argparse.Namespace(**(row.options() | given))
            if row.stock:
                ARCHITECTURES[row.stock](values)
            for name, value in vars(values).items():
                if not hasattr(args, name):
                    # fairseq's architectures set False, its dataclass wants a number.
                    setattr(args, name, int(value) if name == "base_shuffle" else value)
            set_defaults(args, self.model.CONFIG)
            check_options(args, self.model.PLACES)

    def check_names(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError if our model does not have one of ``options``."""
        unknown = options.keys() - self.option_names - {"_name", "arch"}
        if names := ", ".join(sorted(unknown)):
            raise ValueError(f"the model has no option {names}: see fairseq-train --help")

    def nearest_row(
        self, options: Mapping[str, Any], on_command_line: bool = False
    ) -> tuple[str, dict[str, Any]]:
        """Return the row with the fewest sizes that differ from ``options``, and those sizes.

        Of equal rows the first one counts. Dropout is no size. ``on_command_line``: avoid rows that
        need ``normalize_before`` False, which no option of fairseq-train sets.
        """
        rows = []
        for name, row in self.rows.items():
            sizes = row.options()
            del sizes["dropout"]
            differences = {
                key: options.get(key) for key in sizes if options.get(key) != sizes[key]
            }
            impossible = on_command_line and False in differences.values()
            rows.append((impossible, len(differences), name, differences))
        _, _, name, differences = min(rows, key=lambda row: row[:2])
        return name, differences


TRANSLATION = Family(
    name=architectures.MODEL_NAME,
    stock="transformer",
    model=TransformerMHEModel,
    rows=ROWS,
    embeddings=(r"encoder\.embed_tokens\.weight", r"decoder\.embed_tokens\.weight"),
    task=tasks.make_task,
    tied={"share_all_embeddings": True},
)
ROBERTA = Family(
    name=architectures.ROBERTA,
    stock="roberta",
    model=language_models.RobertaMHEModel,
    rows=architectures.ROBERTA_ROWS,
    embeddings=(r"encoder\.sentence_encoder\.embed_tokens\.weight",),
    task=tasks.make_masked_task,
    tied={},
)
CAUSAL = Family(
    name=architectures.CAUSAL,
    stock="transformer_lm",
    model=language_models.TransformerLMMHEModel,
    rows=architectures.LM_ROWS,
    embeddings=(r"decoder\.embed_tokens\.(weight|embeddings\.\d+\.0\.weight)",),
    task=tasks.make_causal_task,
    tied={"share_decoder_input_output_embed": True},
)
FAMILIES = (TRANSLATION, ROBERTA, CAUSAL)
#: The families of language models by the names of their architectures.
LANGUAGE_ARCHS = {
    family.arch(row): family for family in FAMILIES[1:] for row in family.rows
}
for _family in FAMILIES:
    _family.register()


def _model_name(options: Mapping[str, Any]) -> Any:
    arch = options.get("_name") or options.get("arch")
    return ARCH_MODEL_NAME_REGISTRY.get(arch, arch)


def family_of(options: Mapping[str, Any]) -> Family:
    """Return the family of a model with these options; raises UserError if it has none."""
    name = _model_name(options)
    for family in FAMILIES:
        if name in (family.stock, family.name):
            return family
    known = ", ".join(f"{family.stock}, {family.name}" for family in FAMILIES)
    raise UserError(f"unknown architecture {name!r}; only models of {known} are read")


def training_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return by name the options of fairseq-train that build our model, but no dropout rates."""
    family = family_of(options)
    arch = family.arch(family.nearest_row(options, on_command_line=True)[0])
    defaults = argparse.Namespace()
    ARCHITECTURES[arch](defaults)
    flags = {"arch": arch, "attention": options.get("attention")}
    for name in sorted(family.flags):
        value = options.get(name)
        # Classification heads and references such as ${task.tokens_per_sample} belong to a task.
        of_task = "checkpoint_heads" in name or str(value).startswith("${")
        if of_task or "drop" in name or value is None:
            continue
        if value != getattr(defaults, name, None):
            flags[name] = value
    return flags

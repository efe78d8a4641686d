"""The families of models: fairseq's own and ours of one shape; their architectures and options."""

import argparse
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    register_model_architecture,
)
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError, one_clear_line
from fairseq_mhe.models import language_models
from fairseq_mhe.models.architectures import (
    LM_ROWS,
    MODEL_NAME,
    ROBERTA_ROWS,
    ROWS,
    SMALL_ROWS,
    Row,
)
from fairseq_mhe.models.options import OPTIONS, check_options, fill, kinds, plain_options
from fairseq_mhe.models.transformer import AnyKind, TransformerMHEModel


@dataclass(frozen=True)
class Family:
    """Models of one shape.

    ``name``, ``stock``: ours and fairseq's own; ``rows``: the sizes, by the end of their
    architectures' names; ``tables``: a pattern of the names of its tables of words, for each
    dictionary; ``task``: makes one from the sizes of dictionaries; ``tied``: the option that shares
    the tables.
    """

    name: str
    stock: str
    model: type[AnyKind]
    rows: Mapping[str, Row]
    tables: tuple[str, ...]
    task: Callable[..., Any]
    tied: Mapping[str, bool]

    @property
    def places(self) -> tuple[str, ...]:
        """Where attention sits: of ``options.PLACES``."""
        return self.model.PLACES

    def arch(self, row: str) -> str:
        """The ``--arch`` of a row."""
        return f"{self.name}_{row}"

    def words(self, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
        """How many words each dictionary has, from a state's tables (one, or some by frequency)."""
        return tuple(
            sum(
                value.size(0) for name, value in weights.items() if re.fullmatch(table, name)
            )
            for table in self.tables
        )

    @functools.cached_property
    def flags(self) -> frozenset[str]:
        """Our model's options on fairseq-train's command line, by name."""
        parser = argparse.ArgumentParser()
        self.model.add_args(parser)
        return frozenset(action.dest for action in parser._actions)

    @functools.cached_property
    def option_names(self) -> frozenset[str]:
        """All options of our model: also those that only architectures set."""
        filled = argparse.Namespace()
        ARCH_CONFIG_REGISTRY[self.name](filled)
        declared = {field.name for field in fields(self.model.CONFIG)}
        return self.flags | vars(filled).keys() | declared | {"tokens_per_sample"}

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every option of ours for a model of this family, of which some are ``given``."""
        filled = argparse.Namespace(**given)
        ARCH_CONFIG_REGISTRY[given.get("_name") or given["arch"]](filled)
        fill(filled, self.model.CONFIG)
        options = {k: value for k, value in vars(filled).items() if k in self.option_names}
        if self.is_stock(given):
            ours = {name: None for name in OPTIONS if name in options}
            options |= {**ours, "attention": "mha", "attention_bias": True}
        return options

    def kinds(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The kind of attention at each place that a model with such options has."""
        if self.is_stock(options):
            return dict.fromkeys(self.places, "mha")
        chosen = kinds(argparse.Namespace(**options))
        return {place: chosen[place] for place in self.places}

    def is_stock(self, options: Mapping[str, Any]) -> bool:
        """Whether the options are of fairseq's own model."""
        return _model_name(options) == self.stock

    def register(self) -> None:
        """Register the rows as fairseq's architectures; the bare name is the first row."""
        for name, row in {"": next(iter(self.rows.values())), **self.rows}.items():
            configure = functools.partial(self.configure, row)
            arch = self.arch(name).removesuffix("_")
            register_model_architecture(self.name, arch)(configure)

    def configure(self, row: Row, args: Any) -> None:
        """Set the options that ``args`` lacks: sizes, then fairseq's values, then our defaults.

        Called by fairseq before it builds a model. Raises ErrorExit where options do not fit.
        """
        with one_clear_line(ValueError):
            self._refuse_unknown(row, args)
            values = argparse.Namespace(**{**row.options(), **vars(plain_options(args))})
            if row.stock:
                ARCH_CONFIG_REGISTRY[row.stock](values)
            for name, value in vars(values).items():
                if not hasattr(args, name):
                    # False there, where fairseq's dataclass takes numbers.
                    setattr(args, name, int(value) if name == "base_shuffle" else value)
            fill(args, self.model.CONFIG)
            check_options(args, self.places)

    def _refuse_unknown(self, row: Row, args: Any) -> None:
        """Refuse hydra's options that the model lacks, as fairseq's parser does.

        A checkpoint, which has every size, may have options of its task too.
        """
        if isinstance(args, DictConfig) and not all(name in args for name in row.options()):
            unknown = {str(name) for name in args} - self.option_names - {"_name", "arch"}
            if unknown:
                names = ", ".join(sorted(unknown))
                raise ValueError(
                    f"the model has no option {names}: see fairseq-train --help"
                )

    def nearest_row(
        self, options: Mapping[str, Any], on_command_line: bool = False
    ) -> tuple[str, dict[str, Any]]:
        """The row with the fewest differences from flat ``options`` (first of equals).

        Dropout, which is no part of the sizes, does not count. ``on_command_line``: the differences
        are options of fairseq-train, which cannot turn layer normalisation before sublayers off.

        Returns: its name, and the model's own values of the options in which it differs.
        """
        differences: dict[str, dict[str, Any]] = {}
        for name, row in self.rows.items():
            differences[name] = {
                key: options.get(key)
                for key, size in row.options().items()
                if key != "dropout" and options.get(key) != size
            }
        names = list(differences)
        if on_command_line:
            names = [
                name for name in names if False not in differences[name].values()
            ] or names
        nearest = min(names, key=lambda name: len(differences[name]))
        return nearest, differences[nearest]


def make_dictionary(words: int) -> Dictionary:
    """A dictionary of ``words`` made-up words, fairseq's four special symbols among them."""
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return dictionary


#: For tasks that add no words: making a large one takes as long as a model without memory.
_known_dictionary = functools.lru_cache(maxsize=8)(make_dictionary)


def make_task(
    source_words: int, target_words: int | None = None, config: Any = None
) -> TranslationTask:
    """A translation task with made-up words and no data on disk.

    Args:
        source_words: size of the source's dictionary.
        target_words: of the target's (default: one dictionary for both).
        config: the task's options (default: fairseq's).
    """
    source = _known_dictionary(source_words)
    target = _known_dictionary(target_words or source_words)
    return TranslationTask(config or TranslationConfig(), source, target)


TRANSLATION = Family(
    MODEL_NAME,
    "transformer",
    TransformerMHEModel,
    {**ROWS, **SMALL_ROWS},
    (r"encoder\.embed_tokens\.weight", r"decoder\.embed_tokens\.weight"),
    make_task,
    {"share_all_embeddings": True},
)
ROBERTA = Family(
    language_models.ROBERTA,
    "roberta",
    language_models.RobertaMHEModel,
    ROBERTA_ROWS,
    (r"encoder\.sentence_encoder\.embed_tokens\.weight",),
    # The task adds <mask>.
    lambda words: MaskedLMTask(MaskedLMConfig(), make_dictionary(words - 1)),
    {},
)
CAUSAL = Family(
    language_models.CAUSAL,
    "transformer_lm",
    language_models.TransformerLMMHEModel,
    LM_ROWS,
    (r"decoder\.embed_tokens\.(weight|embeddings\.\d+\.0\.weight)",),
    lambda words: LanguageModelingTask(LanguageModelingConfig(), make_dictionary(words)),
    {"share_decoder_input_output_embed": True},
)
FAMILIES = (TRANSLATION, ROBERTA, CAUSAL)
for _family in FAMILIES:
    _family.register()


def _model_name(options: Mapping[str, Any]) -> str:
    arch = options.get("_name") or options.get("arch") or "unknown"
    return str(ARCH_MODEL_NAME_REGISTRY.get(arch, arch))


def family_of(options: Mapping[str, Any]) -> Family:
    """The family of a model with such options.

    Raises:
        UserError: it is of none.
    """
    name = _model_name(options)
    for family in FAMILIES:
        if name in (family.name, family.stock):
            return family
    known = ", ".join(name for family in FAMILIES for name in (family.stock, family.name))
    arch = options.get("_name") or options.get("arch")
    raise UserError(f"unknown architecture {arch!r}; only models of {known} are read")


def language_archs() -> dict[str, Family]:
    """The architectures of language models by name, and their families."""
    return {family.arch(row): family for family in (ROBERTA, CAUSAL) for row in family.rows}


def training_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """fairseq-train's options, by name, that build a model of ours.

    Dropout and heads of tasks, which are no part of the model, are left out.
    """
    family = family_of(options)
    arch = family.arch(family.nearest_row(options, on_command_line=True)[0])
    usual = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](usual)
    flags = {"arch": arch, "attention": options.get("attention")}
    for name in sorted(family.flags):
        value = options.get(name)
        if value is None or "drop" in name or "checkpoint_heads" in name:
            continue
        # A reference to an option of the task, such as ${task.tokens_per_sample}, is no value.
        if value != getattr(usual, name, None) and not str(value).startswith("${"):
            flags[name] = value
    return flags


def fine_tuning_line(output: Path, options: Mapping[str, Any]) -> str:
    """How training goes on from a converted checkpoint."""
    flags = " ".join(as_words(training_options(options)))
    command = f"fairseq-train DATA-BIN --user-dir fairseq_mhe {flags}"
    return f"go on with: {command} --finetune-from-model {output} ..."

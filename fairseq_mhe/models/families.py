"""The families of models: fairseq's own and ours of one shape; their architectures and options."""

import argparse
import copy
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY as ARCHITECTURES
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, register_model_architecture
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mhe.common.errors import UserError, one_clear_line
from fairseq_mhe.models import architectures, language_models
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, Row
from fairseq_mhe.models.options import check_options, fill, kinds, plain_options
from fairseq_mhe.models.transformer import AnyKind, TransformerMHEModel


@dataclass(frozen=True)
class Family:
    """Models of one shape."""

    name: str  # of our model
    stock: str  # of fairseq's
    model: type[AnyKind]
    rows: Mapping[str, Row]  # by the end of their architectures' names
    #: Pattern of the names of its tables of words, for each dictionary.
    tables: tuple[str, ...]
    task: Callable[..., Any]  # from the sizes of dictionaries
    tied: Mapping[str, bool]  # the option that shares the tables

    @property
    def places(self) -> tuple[str, ...]:
        """Of ``options.PLACES``."""
        return self.model.PLACES

    def arch(self, row: str) -> str:
        """The ``--arch`` of a row."""
        return f"{self.name}_{row}"

    def words(self, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
        """How many words each dictionary has, from a state's tables (one, or some by frequency)."""
        sizes = []
        for table in self.tables:
            parts = [w for name, w in weights.items() if re.fullmatch(table, name)]
            sizes.append(sum(map(len, parts)))
        return tuple(sizes)

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
        ARCHITECTURES[self.name](filled)
        declared = {field.name for field in fields(self.model.CONFIG)}
        return self.flags | vars(filled).keys() | declared | {"tokens_per_sample"}

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every option of ours for a model of this family, of which some are ``given``."""
        filled = argparse.Namespace(**given)
        ARCHITECTURES[given.get("_name") or given["arch"]](filled)
        fill(filled, self.model.CONFIG)
        known = self.option_names
        options = {name: value for name, value in vars(filled).items() if name in known}
        if self.is_stock(given):
            options |= {"attention": "mha", "attention_bias": True}
        return options

    def kinds(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The kind of attention at each of its places, of a model with such options."""
        given = {"attention": "mha"} if self.is_stock(options) else options
        chosen = kinds(argparse.Namespace(**given))
        return {place: chosen[place] for place in self.places}

    def is_stock(self, options: Mapping[str, Any]) -> bool:
        return _model_name(options) == self.stock

    def register(self) -> None:
        """Register the rows as fairseq's architectures; the bare name is the first row."""
        (first, *_) = self.rows.values()
        for name, row in {"": first, **self.rows}.items():
            arch = self.arch(name).removesuffix("_")
            configure = functools.partial(self.configure, row)
            register_model_architecture(self.name, arch)(configure)

    def configure(self, row: Row, args: Any) -> None:
        """Set the options that ``args`` lacks, or ErrorExit; called by fairseq before it builds."""
        with one_clear_line(ValueError):
            # A checkpoint, which has every size, may have options of its task too; the parser
            # refuses unknown ones of the command line.
            if isinstance(args, DictConfig) and not row.options().keys() <= args.keys():
                unknown = {*map(str, args)} - self.option_names - {"_name", "arch"}
                if names := ", ".join(sorted(unknown)):
                    problem = f"the model has no option {names}"
                    raise ValueError(f"{problem}: see fairseq-train --help")
            values = argparse.Namespace(**{**row.options(), **vars(plain_options(args))})
            if row.stock:
                ARCHITECTURES[row.stock](values)
            for name, value in vars(values).items():
                if not hasattr(args, name):
                    # fairseq's dataclass takes no False there.
                    setattr(args, name, int(value) if name == "base_shuffle" else value)
            fill(args, self.model.CONFIG)
            check_options(args, self.places)

    def nearest_row(
        self, options: Mapping[str, Any], on_command_line: bool = False
    ) -> tuple[str, dict[str, Any]]:
        """The row (first of equals) with the fewest differences from ``options``, and these.

        Dropout is no size. ``on_command_line``: only differences that fairseq-train can be given,
        which cannot turn layer normalisation before sublayers off.
        """
        own = {**options, "dropout": None}
        rows = []
        for name, row in self.rows.items():
            sizes = {**row.options(), "dropout": None}
            differences = {
                key: own.get(key) for key in sizes if own.get(key) != sizes[key]
            }
            impossible = on_command_line and False in differences.values()
            rows.append((impossible, len(differences), name, differences))
        _, _, name, differences = min(rows, key=lambda row: row[:2])
        return name, differences


@functools.lru_cache(maxsize=8)  # a large one takes as long as a model without memory
def make_dictionary(words: int) -> Dictionary:
    """A shared dictionary of made-up words, fairseq's four special symbols among them."""
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return dictionary


def make_task(
    source: int, target: int | None = None, config: Any = None
) -> TranslationTask:
    """A translation task of made-up words from the sizes of its dictionaries (default: one)."""
    dictionaries = make_dictionary(source), make_dictionary(target or source)
    return TranslationTask(config or TranslationConfig(), *dictionaries)


TRANSLATION = Family(
    name=architectures.MODEL_NAME,
    stock="transformer",
    model=TransformerMHEModel,
    rows={**ROWS, **SMALL_ROWS},
    tables=(r"encoder\.embed_tokens\.weight", r"decoder\.embed_tokens\.weight"),
    task=make_task,
    tied={"share_all_embeddings": True},
)
ROBERTA = Family(
    name=language_models.ROBERTA,
    stock="roberta",
    model=language_models.RobertaMHEModel,
    rows=architectures.ROBERTA_ROWS,
    tables=(r"encoder\.sentence_encoder\.embed_tokens\.weight",),
    # It adds <mask> to its own dictionary.
    task=lambda words: MaskedLMTask(
        MaskedLMConfig(), copy.deepcopy(make_dictionary(words - 1))
    ),
    tied={},
)
CAUSAL = Family(
    name=language_models.CAUSAL,
    stock="transformer_lm",
    model=language_models.TransformerLMMHEModel,
    rows=architectures.LM_ROWS,
    tables=(r"decoder\.embed_tokens\.(weight|embeddings\.\d+\.0\.weight)",),
    task=lambda words: LanguageModelingTask(
        LanguageModelingConfig(), make_dictionary(words)
    ),
    tied={"share_decoder_input_output_embed": True},
)
FAMILIES = (TRANSLATION, ROBERTA, CAUSAL)
#: Of language models, by name.
LANGUAGE_ARCHS = {
    family.arch(row): family for family in FAMILIES[1:] for row in family.rows
}
for _family in FAMILIES:
    _family.register()


def _model_name(options: Mapping[str, Any]) -> Any:
    arch = options.get("_name") or options.get("arch")
    return ARCH_MODEL_NAME_REGISTRY.get(arch, arch)


def family_of(options: Mapping[str, Any]) -> Family:
    """The family of a model with such options, or UserError."""
    name = _model_name(options)
    for family in FAMILIES:
        if name in (family.stock, family.name):
            return family
    known = ", ".join(f"{family.stock}, {family.name}" for family in FAMILIES)
    raise UserError(f"unknown architecture {name!r}; only models of {known} are read")


def training_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """fairseq-train's options, by name, that build a model of ours, but for dropout."""
    family = family_of(options)
    arch = family.arch(family.nearest_row(options, on_command_line=True)[0])
    usual = argparse.Namespace()
    ARCHITECTURES[arch](usual)
    flags = {"arch": arch, "attention": options.get("attention")}
    for name in sorted(family.flags):
        value = options.get(name)
        # The task's own: heads, and what references such as ${task.tokens_per_sample} name.
        of_task = "checkpoint_heads" in name or str(value).startswith("${")
        if of_task or "drop" in name or value is None:
            continue
        if value != getattr(usual, name, None):
            flags[name] = value
    return flags

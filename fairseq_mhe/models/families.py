"""The families of models: fairseq's own, ours of the same shape, where their attention sits."""

import argparse
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models import language_model, roberta
from fairseq_mhe.models.architectures import (
    LM_ROWS,
    ROBERTA_ROWS,
    ROWS,
    SMALL_ROWS,
    Row,
    option_names,
)
from fairseq_mhe.models.options import (
    MODEL_NAME,
    OPTIONS,
    PLACES,
    OnePlaceConfig,
    TransformerMHEConfig,
    fill,
    kinds,
)


@dataclass(frozen=True)
class Family:
    """Models of one shape.

    ``name``, ``stock``: ours and fairseq's own; ``places``: of ``PLACES``; ``rows``: the sizes, by
    the end of their architectures' names; ``tables``: a pattern of the names of its tables of
    words, for each dictionary; ``task``: makes one from the sizes of dictionaries; ``config``: has
    the defaults of all options; ``tied``: the option that shares the tables.
    """

    name: str
    stock: str
    places: tuple[str, ...]
    rows: Mapping[str, Row]
    tables: tuple[str, ...]
    task: Callable[..., Any]
    config: type[FairseqDataclass]
    tied: Mapping[str, bool]

    def arch(self, row: str) -> str:
        """The ``--arch`` of a row."""
        return f"{self.name}_{row}"

    def words(self, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
        """How many words each dictionary has, from a state's tables (one, or some by frequency)."""
        return tuple(
            sum(value.size(0) for name, value in weights.items() if re.fullmatch(table, name))
            for table in self.tables
        )

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every option of ours for a model of this family, of which some are ``given``."""
        filled = argparse.Namespace(**given)
        ARCH_CONFIG_REGISTRY[given.get("_name") or given["arch"]](filled)
        fill(filled, self.config)
        names = option_names(self.name)
        options = {name: value for name, value in vars(filled).items() if name in names}
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


def _masked_task(words: int) -> MaskedLMTask:
    return MaskedLMTask(MaskedLMConfig(), make_dictionary(words - 1))  # the task adds <mask>


def _causal_task(words: int) -> LanguageModelingTask:
    return LanguageModelingTask(LanguageModelingConfig(), make_dictionary(words))


TRANSLATION = Family(
    MODEL_NAME,
    "transformer",
    tuple(PLACES),
    {**ROWS, **SMALL_ROWS},
    (r"encoder\.embed_tokens\.weight", r"decoder\.embed_tokens\.weight"),
    make_task,
    TransformerMHEConfig,
    {"share_all_embeddings": True},
)
ROBERTA = Family(
    roberta.NAME,
    "roberta",
    roberta.PLACES,
    ROBERTA_ROWS,
    (r"encoder\.sentence_encoder\.embed_tokens\.weight",),
    _masked_task,
    OnePlaceConfig,
    {},
)
CAUSAL = Family(
    language_model.NAME,
    "transformer_lm",
    language_model.PLACES,
    LM_ROWS,
    (r"decoder\.embed_tokens\.(weight|embeddings\.\d+\.0\.weight)",),
    _causal_task,
    language_model.TransformerLMMHEConfig,
    {"share_decoder_input_output_embed": True},
)
FAMILIES = (TRANSLATION, ROBERTA, CAUSAL)


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
    raise UserError(f"a model of architecture {arch!r}: only {known} are understood")


def language_archs() -> dict[str, Family]:
    """The architectures of language models by name, and their families."""
    return {family.arch(row): family for family in (ROBERTA, CAUSAL) for row in family.rows}

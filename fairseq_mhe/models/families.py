"""The families of models: fairseq's own, ours of the same shape, where their attention sits."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, BaseFairseqModel
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
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
from fairseq_mhe.models.build import build, make_dictionary, make_task, without_memory
from fairseq_mhe.models.options import (
    MODEL_NAME,
    OPTIONS,
    PLACES,
    OnePlaceConfig,
    TransformerMHEConfig,
    fill,
)


@dataclass(frozen=True)
class Family:
    """Models of one shape.

    ``name``, ``stock``: ours and fairseq's own; ``places``: of ``PLACES``; ``rows``: the sizes, by
    the end of their architectures' names; ``tables``: how the names of its tables of words begin,
    one for each dictionary; ``task``: makes one from the sizes of dictionaries;
    ``config``: has the defaults of all options.
    """

    name: str
    stock: str
    places: tuple[str, ...]
    rows: Mapping[str, Row]
    tables: tuple[str, ...]
    task: Callable[..., Any]
    config: type[FairseqDataclass]

    def arch(self, row: str) -> str:
        """The ``--arch`` of a row."""
        return f"{self.name}_{row}"

    def words(self, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
        """How many words each dictionary has, from a state's tables (one, or some by frequency)."""
        return tuple(
            sum(value.size(0) for name, value in weights.items() if _is_table(name, begin))
            for begin in self.tables
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
            options |= ours | {"attention": "mha", "attention_bias": True}
        return options

    def is_stock(self, options: Mapping[str, Any]) -> bool:
        """Whether the options are of fairseq's own model."""
        return _model_name(options) == self.stock


def _is_table(name: str, begin: str) -> bool:
    """Whether a weight is a table of words, or one of the tables of adaptive inputs."""
    rest = name.removeprefix(begin)
    return name.startswith(begin) and (rest == "weight" or rest.endswith(".0.weight"))


def _masked_task(words: int) -> MaskedLMTask:
    return MaskedLMTask(MaskedLMConfig(), make_dictionary(words - 1))  # the task adds <mask>


def _causal_task(words: int) -> LanguageModelingTask:
    return LanguageModelingTask(LanguageModelingConfig(), make_dictionary(words))


TRANSLATION = Family(
    MODEL_NAME,
    "transformer",
    tuple(PLACES),
    {**ROWS, **SMALL_ROWS},
    ("encoder.embed_tokens.", "decoder.embed_tokens."),
    make_task,
    TransformerMHEConfig,
)
ROBERTA = Family(
    roberta.NAME,
    "roberta",
    roberta.PLACES,
    ROBERTA_ROWS,
    ("encoder.sentence_encoder.embed_tokens.",),
    _masked_task,
    OnePlaceConfig,
)
CAUSAL = Family(
    language_model.NAME,
    "transformer_lm",
    language_model.PLACES,
    LM_ROWS,
    ("decoder.embed_tokens.",),
    _causal_task,
    language_model.TransformerLMMHEConfig,
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


def build_ours(options: Mapping[str, Any], task: Any) -> BaseFairseqModel:
    """As `build`, for flat options of a model of ours that are whole, of any architecture."""
    return build({**options, "_name": family_of(options).name}, task)


def language_archs() -> dict[str, Family]:
    """The architectures of language models by name, and their families."""
    return {family.arch(row): family for family in (ROBERTA, CAUSAL) for row in family.rows}


def build_language_on_meta(
    arch: str, attention: str, vocabulary: int, **options: Any
) -> BaseFairseqModel:
    """As `build_on_meta`, for a key of `language_archs`.

    Raises:
        UserError: options do not fit it, a place is not the model's, or a vocabulary has no words.
    """
    family = language_archs()[arch]
    if vocabulary <= len(Dictionary()) + 1:
        raise UserError(f"a vocabulary of {vocabulary} has no words: take more")
    for place, option in PLACES.items():
        if option in options:
            raise UserError(f"--{place}-attention is for translation, not for {arch}: leave it out")
    tied = {"share_decoder_input_output_embed": True} if family is CAUSAL else {}
    given = {"arch": arch, "attention": attention, **tied, **options}
    if arch.endswith("_wiki103"):
        given.pop("share_decoder_input_output_embed")
    with without_memory():
        return build(given, family.task(vocabulary))

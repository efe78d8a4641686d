"""Build models from flat options, from a configuration, or from a row and a kind."""

import argparse
from collections.abc import Mapping
from typing import Any

import torch
from fairseq.models import BaseFairseqModel, build_model

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import VOCABULARY
from fairseq_mhe.models.families import LANGUAGE_ARCHS, TRANSLATION, family_of
from fairseq_mhe.models.options import PLACES


def build(options: Any, task: Any, seed: int | None = None) -> BaseFairseqModel:
    """Return a new model for a task, with weights drawn from ``seed``; UserError for bad options.

    ``options``: fairseq-train's with ``arch``, or the model's part of a configuration.
    """
    if seed is not None:
        torch.manual_seed(seed)
    if isinstance(options, dict):
        options = argparse.Namespace(**options)
    try:
        return build_model(options, task)
    except AssertionError as error:  # of fairseq, about sizes
        raise UserError(f"fairseq {error}: choose sizes that fit together") from None


def build_ours(options: Mapping[str, Any], task: Any) -> BaseFairseqModel:
    """Like `build`, but return our model for the options of fairseq's model or of ours."""
    return build({**options, "_name": family_of(options).name}, task)


def build_on_meta(
    row: str, attention: str, vocabulary: int = VOCABULARY, **options: Any
) -> BaseFairseqModel:
    """Return the model of a row and kind without memory; raises UserError for bad options.

    ``row``: a row of translation, or a language model's architecture; ``vocabulary``: size of the
    joined dictionary with its special symbols; ``options``: further ones of fairseq-train.
    """
    family = LANGUAGE_ARCHS.get(row, TRANSLATION)
    if family is TRANSLATION:
        row = family.arch(row)
    for place, option in PLACES.items():
        if option in options and place not in family.model.PLACES:
            flag = f"--{place}-attention"
            raise UserError(f"{flag} is for translation, not for {row}: leave it out")
    # wiki103 shares embeddings by options of its adaptive softmax, which its architecture sets.
    tied = {} if row.endswith("_wiki103") else family.tied
    given = {"arch": row, "attention": attention, **tied, **options}
    with torch.device("meta"):
        return build(given, family.task(vocabulary))

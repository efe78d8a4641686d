"""How all models are built: from flat options, a configuration, or a row and a kind."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from fairseq.models import BaseFairseqModel, build_model
from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.families import LANGUAGE_ARCHS, TRANSLATION, family_of
from fairseq_mhe.models.meta import without_memory
from fairseq_mhe.models.options import PLACES

#: Size of a joined dictionary where none is given.
VOCABULARY = 32768


def build(options: Any, task: Any, seed: int | None = None) -> BaseFairseqModel:
    """The model of a task, freshly drawn from ``seed``, or UserError where options do not fit.

    ``options``: fairseq-train's, ``arch`` among them, or the model's part of a configuration.
    """
    if seed is not None:
        torch.manual_seed(seed)
    if isinstance(options, dict):
        options = argparse.Namespace(**options)
    try:
        return build_model(options, task)
    except ErrorExit as error:
        raise UserError(error.message) from None


def build_ours(options: Mapping[str, Any], task: Any) -> BaseFairseqModel:
    """Our model, from all flat options of fairseq's model or ours; else as `build`."""
    return build({**options, "_name": family_of(options).name}, task)


def build_on_meta(
    row: str, attention: str, vocabulary: int = VOCABULARY, **options: Any
) -> BaseFairseqModel:
    """The model of a row and kind `without_memory`, or UserError where options do not fit.

    ``row``: of translation, or a language model's architecture; ``vocabulary``: size of the joined
    dictionary, special symbols among it; ``options``: more of fairseq-train's.
    """
    family = LANGUAGE_ARCHS.get(row, TRANSLATION)
    if family is TRANSLATION:
        sizes(row)
        row = family.arch(row)
    for place, option in PLACES.items():
        if option in options and place not in family.places:
            flag = f"--{place}-attention"
            raise UserError(f"{flag} is for translation, not for {row}: leave it out")
    # Its adaptive softmax shares tables by other options.
    tied = {} if row.endswith("_wiki103") else family.tied
    given = {"arch": row, "attention": attention, **tied, **options}
    with without_memory():
        return build(given, family.task(vocabulary))


def sublayers(model: nn.Module) -> Iterator[tuple[str, str, Attention]]:
    """Each attention sublayer: its name in the model, its place (a key of ``PLACES``), itself."""
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            yield name, place_of(name), module


def place_of(name: str) -> str:
    """The place of a sublayer or of one of its parameters, from its name."""
    return "cross" if ".encoder_attn" in name else name.split(".")[0]

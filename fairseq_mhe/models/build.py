"""The one way to build a model: from a row's name and options, without memory behind its parameters where they suffice."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from torch import nn

from fairseq_mhe.attention import build_attention
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, arch_name
from fairseq_mhe.models.transformer import check_options

#: Size of the joined dictionary where none is given.
VOCABULARY = 32768


@dataclass(frozen=True)
class Setting:
    """A stack of self-attention sublayers without the rest of the model."""

    embed_dim: int
    heads: int
    sublayers: int


#: The paper's pre-trained language models, of BERT-base's size.
SETTINGS = {"bert-base": Setting(embed_dim=768, heads=12, sublayers=12)}


def build_on_meta(
    row: str, attention: str, vocabulary: int = VOCABULARY, **options: Any
) -> nn.Module:
    """The model of a row and kind with parameters of the right shapes and no memory behind them.

    Args:
        row: a key of ``ROWS`` or ``SMALL_ROWS``.
        attention: a kind of attention.
        vocabulary: size of the joined dictionary, fairseq's four special symbols among it.
        options: further options of the model, by fairseq-train's names.

    Raises:
        UserError: no such row or kind, options that do not fit it, or a vocabulary without words.
    """
    rows = {**ROWS, **SMALL_ROWS}
    if row not in rows:
        raise UserError(f"unknown row {row!r}; choose one of: {', '.join(rows)}")
    dictionary = Dictionary()
    if vocabulary <= len(dictionary):
        raise UserError(
            f"a vocabulary of {vocabulary} has no words: take more than {len(dictionary)}"
        )
    for index in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    try:
        check_options(
            argparse.Namespace(**{**rows[row].options(), "attention": attention, **options})
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    args = argparse.Namespace(
        arch=arch_name(row), attention=attention, share_all_embeddings=True, **options
    )
    with torch.device("meta"):
        return build_model(args, task)


def build_setting(setting: str, attention: str) -> nn.ModuleList:
    """The attention sublayers of a setting (a key of ``SETTINGS``), without memory behind their parameters."""
    size = SETTINGS[setting]
    with torch.device("meta"):
        return nn.ModuleList(
            build_attention(attention, size.embed_dim, size.heads, self_attention=True)
            for _ in range(size.sublayers)
        )

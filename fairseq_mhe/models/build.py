"""The one way to build a model: from flat options or a configuration, whatever the words."""

import argparse
import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel, build_model
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mhe.attention import Attention, build_attention
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.models.architectures import arch_name, sizes

#: Size of a joined dictionary where none is given.
VOCABULARY = 32768


@dataclass(frozen=True)
class Setting:
    """A stack of self-attention sublayers without the rest of the model."""

    embed_dim: int
    heads: int
    sublayers: int


#: The paper's pre-trained language models, of BERT-base's size.
SETTINGS = {"bert-base": Setting(embed_dim=768, heads=12, sublayers=12)}


def make_dictionary(words: int) -> Dictionary:
    """A dictionary of ``words`` made-up words, fairseq's four special symbols among them."""
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return dictionary


#: For tasks that add no words to it: making a large one takes as long as a model without memory.
_known_dictionary = functools.lru_cache(maxsize=8)(make_dictionary)


def make_task(
    source_words: int, target_words: int | None = None, config: Any = None
) -> TranslationTask:
    """A translation task with made-up words and no data on disk.

    Args:
        source_words: size of the source's dictionary.
        target_words: of the target's; the dictionary is one where both are equal or none is given.
        config: the task's options, fairseq's defaults where none are given.
    """
    source = _known_dictionary(source_words)
    joined = target_words in (None, source_words)
    target = source if joined else _known_dictionary(target_words or 0)
    return TranslationTask(config or TranslationConfig(), source, target)


def build(
    options: dict[str, Any] | DictConfig | argparse.Namespace, task: Any, seed: int | None = None
) -> BaseFairseqModel:
    """The model of a task, freshly initialised, in training mode.

    Args:
        options: flat ones of fairseq-train, ``arch`` among them, or the model's part of a whole
            configuration.
        task: what has the dictionaries.
        seed: what the weights alone depend on; without one, on what was drawn before.

    Raises:
        UserError: the options do not fit together.
    """
    if seed is not None:
        torch.manual_seed(seed)
    cfg = argparse.Namespace(**options) if isinstance(options, dict) else options
    try:
        return build_model(cfg, task)
    except ErrorExit as error:
        raise UserError(error.message) from None


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Models made meanwhile have parameters of the right shapes and no memory behind them.

    Nor are these initialised, nor sinusoids computed, which without memory does nothing, for more
    than half of the time.
    """
    names = [name for name in vars(nn.init) if name.endswith("_") and not name.startswith("_")]
    nothing: dict[str, Any] = {name: lambda tensor, *_, **__: tensor for name in names}
    positions = patch.object(SinusoidalPositionalEmbedding, "get_embedding", _no_sinusoids)
    with torch.device("meta"), patch.multiple(nn.init, **nothing), positions:
        yield


def _no_sinusoids(positions: int, width: int, padding_idx: int | None = None) -> Tensor:
    """Room for fairseq's sinusoidal embedding: (positions, width)."""
    return torch.empty(positions, width)


def build_on_meta(
    row: str, attention: str, vocabulary: int = VOCABULARY, **options: Any
) -> BaseFairseqModel:
    """The model of a row and kind with parameters of the right shapes and no memory behind them.

    Args:
        row: a key of ``ROWS`` or ``SMALL_ROWS``.
        attention: a kind of attention.
        vocabulary: size of the joined dictionary, fairseq's four special symbols among it.
        options: further options of the model, by fairseq-train's names. The source shares the
            target's table.

    Raises:
        UserError: the row or kind is unknown, options do not fit it, or a vocabulary has no words.
    """
    sizes(row)
    special = len(Dictionary())
    if vocabulary <= special:
        raise UserError(f"a vocabulary of {vocabulary} has no words: take more than {special}")
    with without_memory():
        arch = {"arch": arch_name(row), "attention": attention, "share_all_embeddings": True}
        return build({**arch, **options}, make_task(vocabulary))


def build_setting(setting: str, attention: str) -> nn.ModuleList:
    """The attention sublayers of a setting (a key of ``SETTINGS``), without memory for them."""
    size = SETTINGS[setting]
    with without_memory():
        return nn.ModuleList(
            build_attention(attention, size.embed_dim, size.heads, self_attention=True)
            for _ in range(size.sublayers)
        )


def sublayers(model: nn.Module) -> Iterator[tuple[str, str, Attention]]:
    """Each attention sublayer: its name in the model, its place (a key of ``PLACES``), itself."""
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            yield name, place_of(name), module


def place_of(name: str) -> str:
    """The place of a sublayer or of one of its parameters, from its name."""
    return "cross" if ".encoder_attn" in name else name.split(".")[0]

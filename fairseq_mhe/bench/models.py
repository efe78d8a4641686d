"""The models that are compared, built as fairseq-train would, and batches for them."""

import copy
import functools
import shlex
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig
from torch import nn

from fairseq_mhe.bench.benchmark import STOCK, Values
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import build as build_model
from fairseq_mhe.models.families import TRANSLATION, make_task
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.models.packed import PackedLinear
from fairseq_mhe.prepare.data_folder import open_binary

#: After a kind of attention in the name of a variant that generates in 8 bits, or in bf16.
INT8, BF16 = "_int8", "_bf16"
LANGUAGES = ("source", "target")
_RECIPE = shlex.split("""
    --task translation --source-lang source --target-lang target --share-all-embeddings
    --label-smoothing 0.1 --adam-betas '(0.9, 0.98)' --clip-norm 0.0
    --lr-scheduler inverse_sqrt --lr 0.0005 --warmup-updates 4000
""")
#: Random sentence pairs, enough for batches of sentences of similar length, as real training has.
_PAIRS = 20_000
#: Deviations of the logarithms of source lengths and of target / source: those of the first 20,000
#: pairs of Europarl v7 English-German, in words.
_SPREAD, _RATIO_SPREAD = 0.68, 0.20
_SHORTEST, _LONGEST = 3, 200
#: fairseq-train's own: batches' sizes are multiples of it.
_MULTIPLE = 8
#: In a batch to translate, the shortest sentence has this share of the longest one's tokens:
#: fairseq sorts by length.
_SHORTEST_SHARE = 0.9


def configuration(
    variant: str, settings: Namespace, dtype: str, extra: Sequence[str] = ()
) -> DictConfig:
    """Of ``STOCK``, or a kind with ``INT8`` or ``BF16`` behind it or not; and ``extra`` words."""
    chosen: Values = {dtype: dtype != "float32", "cpu": settings.device == "cpu"}
    chosen["seed"] = settings.seed
    if variant == STOCK:  # without what is quicker of ours
        chosen |= {"arch": "transformer", **sizes(settings.row).options()}
        chosen |= {"criterion": criterion_for("float32"), "optimizer": "adam"}
    else:
        chosen["arch"] = TRANSLATION.arch(settings.row)
        chosen["attention"] = variant.removesuffix(INT8).removesuffix(BF16)
        chosen["int8_generation"] = variant.endswith(INT8)
        chosen["generation_precision"] = "bf16" if variant.endswith(BF16) else "float32"
        chosen |= {"criterion": criterion_for(dtype), "optimizer": optimizer_for(dtype)}
    words = ("no-data", *_RECIPE, *as_words(chosen), *extra)
    return copy.deepcopy(configuration_of(words))


@functools.cache  # parsing takes longer than many a repetition
def configuration_of(words: tuple[str, ...]) -> DictConfig:
    """What ``fairseq-train`` would make of a command line; remembered, so not to be changed."""
    args = options.parse_args_and_arch(options.get_training_parser(), list(words))
    return convert_namespace_to_omegaconf(args)


def build(variant: str, settings: Namespace, *rest: Any) -> tuple[DictConfig, Any, Any]:
    """Its `configuration`, a task with a joined dictionary of made-up words, and the model."""
    cfg = configuration(variant, settings, *rest)
    task = make_task(settings.vocab_size, config=cfg.task)
    return cfg, task, build_model(cfg.model, task, cfg.common.seed)


def weight_bytes(model: nn.Module) -> int:
    """Bytes of parameters, shared ones once, and of the packed copies for inference on a CPU."""
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    copies = sum(module.packed_bytes for module in packed)
    return copies + sum(weight.nbytes for weight in model.parameters())


def random_lengths(random: np.random.Generator, count: int, spread: float) -> np.ndarray:
    """Lengths (count,) in subwords, log-normal around 24 with this deviation of the logarithm."""
    return 24.0 * np.exp(spread * random.standard_normal(count))


def random_batches(
    dictionary: Dictionary, max_tokens: int, count: int, seed: int
) -> Iterable[Values]:
    """``count`` batches as fairseq-train would see them with ``--max-tokens max_tokens``."""
    random = np.random.default_rng(seed)
    longest = min(_LONGEST, max_tokens)
    source = random_lengths(random, _PAIRS, _SPREAD).round().clip(_SHORTEST, longest)
    target = source * np.exp(_RATIO_SPREAD * random.standard_normal(_PAIRS))
    sides = source, target.round().clip(_SHORTEST, longest)
    pairs = _dataset(dictionary, seed, *(lengths.astype(np.int64) for lengths in sides))
    batches = pairs.batch_by_size(pairs.ordered_indices(), max_tokens, None, _MULTIPLE)
    chosen = random.choice(len(batches), size=count, replace=count > len(batches))
    sentences = [[pairs[index] for index in batches[number]] for number in chosen]
    return list(map(pairs.collater, sentences))


def real_batches(
    folder: Path, cfg: DictConfig, vocabulary: int, max_tokens: int
) -> Iterable[Values]:
    """An epoch of a data folder's shuffled batches; UserError where ``vocabulary`` is too small."""
    data = open_binary(folder)
    cfg = copy.deepcopy(cfg)
    cfg.data = str(data.binary)
    cfg.source_lang, cfg.target_lang = data.languages
    dictionaries = map(str, data.binary.glob("dict.*.txt"))
    words = max(len(Dictionary.load(path)) for path in dictionaries)
    if words > vocabulary:
        raise UserError(f"{folder} has {words} words: give --vocab-size {words} or more")
    task = make_task(vocabulary, config=cfg)
    task.load_dataset("train")
    pairs = task.dataset("train")
    limits = {"max_tokens": max_tokens, "required_batch_size_multiple": _MULTIPLE}
    epoch = task.get_batch_iterator(pairs, **limits, seed=1)
    return epoch.next_epoch_itr()


def translation_batch(
    dictionary: Dictionary,
    sentences: int,
    length: int,
    seed: int,
    with_target: bool = False,
) -> Values:
    """One batch as fairseq-generate would see it: src_tokens (B, S), padded on the left.

    Sentences have ``length`` tokens, their ends included, or down to a tenth fewer.
    ``with_target``: as fairseq-train would see it, targets as long as sources.
    """
    shortest = max(2.0, length * _SHORTEST_SHARE)
    lengths = np.linspace(length, shortest, sentences).round().astype(np.int64)
    sides = [lengths, lengths] if with_target else [lengths]
    dataset = _dataset(dictionary, seed, *sides)
    return dataset.collater([dataset[index] for index in range(sentences)])


def _dataset(
    dictionary: Dictionary, seed: int, *lengths: np.ndarray
) -> LanguagePairDataset:
    """Random sources, and targets if there are lengths for them, their ends among the tokens."""
    sides: list[Any] = []
    for side, counts in enumerate(lengths):
        random = torch.Generator().manual_seed(seed + side)
        least = dictionary.nspecial
        tokens = torch.randint(least, len(dictionary), (counts.sum(),), generator=random)
        sentences = tokens.split(counts.tolist())
        for sentence in sentences:
            sentence[-1] = dictionary.eos()
        sides += [sentences, counts, dictionary]
    # Not shuffled among those of one length, by a global seed: they are random as they are.
    return LanguagePairDataset(*sides, shuffle=False)

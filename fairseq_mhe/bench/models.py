"""The models to compare, built as fairseq-train builds them, and batches for them."""

import copy
import functools
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig
from torch import nn

from fairseq_mhe.bench.benchmark import Options, Values
from fairseq_mhe.bench.variants import Variant
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.compare import random_dataset
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import build as build_model
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import costs
from fairseq_mhe.models.families import TRANSLATION
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.models.packed import PackedLinear
from fairseq_mhe.models.tasks import make_task
from fairseq_mhe.prepare.data_folder import load_task, open_binary
from fairseq_mhe.runs.processes import user_dir

LANGUAGES = ("source", "target")
_RECIPE = shlex.split("""
    --task translation --source-lang source --target-lang target --share-all-embeddings
    --label-smoothing 0.1 --adam-betas '(0.9, 0.98)' --clip-norm 0.0
    --lr-scheduler inverse_sqrt --lr 0.0005 --warmup-updates 4000
""")
#: Number of random pairs: enough that batches have sentences of similar length, as in training.
_PAIRS = 20_000
#: Standard deviations of the logarithms of source length and of target / source length, from the
#: first 20,000 pairs of Europarl v7 English-German, in words.
_SPREAD, _RATIO_SPREAD = 0.68, 0.20
_SHORTEST, _LONGEST = 3, 200  # tokens of a random sentence
_MULTIPLE = 8  # fairseq-train's default of --required-batch-size-multiple
#: In a batch to translate, the shortest length / the longest one: fairseq sorts by length.
_SHORTEST_SHARE = 0.9


def configuration(
    variant: Variant, settings: Options, dtype: str, extra: Sequence[str] = ()
) -> DictConfig:
    """Return fairseq-train's configuration for a variant; ``extra``: further command-line words."""
    train: Values = {"seed": settings.seed, "cpu": settings.device == "cpu"}
    if dtype != "float32":
        train[dtype] = True  # --bf16 or --fp16
    if variant.kind:
        train["arch"] = TRANSLATION.arch(settings.row)
        train["attention"] = variant.kind
        train["generation_precision"] = variant.precision or None
        train |= {"criterion": criterion_for(dtype), "optimizer": optimizer_for(dtype)}
    else:  # fairseq's own loss and optimizer, not our faster ones
        train |= {"arch": "transformer", **sizes(settings.row).options()}
        train |= {"criterion": criterion_for("float32"), "optimizer": "adam"}
    # A worker process imports the user's kinds here.
    words = ("no-data", f"--user-dir={user_dir()}", *_RECIPE, *as_words(train), *extra)
    return copy.deepcopy(configuration_of(words))


@functools.cache  # parsing takes longer than many a repetition
def configuration_of(words: tuple[str, ...]) -> DictConfig:
    """Parse fairseq-train's command line; the result is cached, so callers must not change it."""
    args = options.parse_args_and_arch(options.get_training_parser(), list(words))
    return convert_namespace_to_omegaconf(args)


def build(
    variant: Variant, settings: Options, dtype: str, extra: Sequence[str] = ()
) -> tuple[DictConfig, Any, Any]:
    """Return a `configuration`, a task with one dictionary of made-up words, and the model."""
    cfg = configuration(variant, settings, dtype, extra)
    task = make_task(settings.vocab_size, config=cfg.task)
    return cfg, task, build_model(cfg.model, task, cfg.common.seed)


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of parameters (shared ones count once) and of copies packed for a CPU."""
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    copies = sum(module.packed_bytes for module in packed)
    return copies + sum(weight.nbytes for weight in model.parameters())


def training_operations(settings: Options, kind: str, batches: Sequence[Values]) -> float:
    """Return the additions and multiplications of an update on each batch, without padding.

    A backward pass computes each product of the forward pass twice, for inputs and for weights.
    """
    model = build_on_meta(settings.row, kind, settings.vocab_size)
    sentences = sum(batch["nsentences"] for batch in batches)
    target = sum(batch["ntokens"] for batch in batches)
    source = sum(int(batch["net_input"]["src_lengths"].sum()) for batch in batches)
    parts = costs(model, round(source / sentences), target / sentences).values()
    multiply_adds = sum(part.source * source + part.target * target for part in parts)
    return 3 * 2 * multiply_adds


def random_lengths(random: np.random.Generator, count: int, spread: float) -> np.ndarray:
    """Draw lengths (count,) in subwords: log-normal, median 24, ``spread`` of the logarithms."""
    return 24.0 * np.exp(spread * random.standard_normal(count))


def random_batches(
    dictionary: Dictionary, max_tokens: int, count: int, seed: int
) -> list[Values]:
    """Return ``count`` random batches, as fairseq-train makes them by ``--max-tokens``."""
    random = np.random.default_rng(seed)
    longest = min(_LONGEST, max_tokens)
    source = random_lengths(random, _PAIRS, _SPREAD).round().clip(_SHORTEST, longest)
    target = source * np.exp(_RATIO_SPREAD * random.standard_normal(_PAIRS))
    target = target.round().clip(_SHORTEST, longest)
    sides = [(lengths.astype(np.int64), dictionary) for lengths in (source, target)]
    pairs = random_dataset(seed, *sides)
    batches = pairs.batch_by_size(pairs.ordered_indices(), max_tokens, None, _MULTIPLE)
    chosen = random.choice(len(batches), size=count, replace=count > len(batches))
    made = []
    for number in chosen:
        made.append(pairs.collater([pairs[index] for index in batches[number]]))
    return made


def real_batches(
    folder: Path, vocabulary: int, max_tokens: int, count: int
) -> list[Values]:
    """Return the first ``count`` batches of a data folder's first epoch, or all if it has fewer.

    They leave out pairs that are longer than a batch, as fairseq-train does. Raises UserError if
    ``vocabulary`` is too small.
    """
    task = load_task(open_binary(folder))
    words = max(len(task.source_dictionary), len(task.target_dictionary))
    if words > vocabulary:
        raise UserError(f"{folder} has {words} words: give --vocab-size {words} or more")
    task.load_dataset("train")
    epoch = task.get_batch_iterator(
        task.dataset("train"),
        max_tokens=max_tokens,
        max_positions=utils.resolve_max_positions(task.max_positions(), max_tokens),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=_MULTIPLE,
    )
    return list(itertools.islice(epoch.next_epoch_itr(), count))


def translation_batch(
    dictionary: Dictionary,
    sentences: int,
    length: int,
    seed: int,
    with_target: bool = False,
) -> Values:
    """Return a batch as fairseq-generate makes it: src_tokens (B, S), padded on the left.

    Sentences have ``length`` tokens, including the end, or up to a tenth fewer.
    ``with_target``: a batch as fairseq-train makes it, with targets as long as their sources.
    """
    shortest = max(2.0, length * _SHORTEST_SHARE)
    lengths = np.linspace(length, shortest, sentences).round().astype(np.int64)
    sides = [(lengths, dictionary)] * (1 + with_target)
    dataset = random_dataset(seed, *sides)
    return dataset.collater(list(dataset))
